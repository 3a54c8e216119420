"""What a box has made, taken into the controller's store, so that every like box gets the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from gpufleet.errors import BoxError
from gpufleet.wheelhouse import built as records
from gpufleet.wheelhouse.items import FetchError, Item
from gpufleet.wheelhouse.store import Store
from operations.remote_shell import GONE, broke_off, opened

if TYPE_CHECKING:
    from operations.deployment import Deployment


def take(box: Deployment, made: Mapping[str, Any], store: Store, name: str) -> Item:
    """Copy {filename, sha256, size, …} from the box's store, and remember it as `name`. Raises BoxError."""
    try:
        with _opened(box, f"{records.STORE}/{made['sha256']}/{made['filename']}") as content:
            return records.keep(store, name, made, content, box.host.name)
    except FetchError as error:
        raise BoxError(box.host.name, str(error).rstrip("."), "mend that, then deploy again") from error


@contextmanager
def _opened(box: Deployment, path: str) -> Iterator[_Content]:
    """A file of the box, read over its SSH connection. Raises BoxError."""
    client: Any = getattr(box.host.connector, "client", None)
    open_now = ExitStack()
    try:
        try:
            sftp = open_now.enter_context(opened(box.host, client.open_sftp))
            handle = open_now.enter_context(sftp.open(path, "rb"))
            handle.prefetch()
        except GONE as error:
            cause = f"{path} cannot be read by SFTP ({error})"
            raise BoxError(box.host.name, cause, "allow SFTP on the box") from error
        yield _Content(box, client, path, handle)
    finally:
        with suppress(*GONE):
            open_now.close()


class _Content:
    """What a file of the box holds."""

    def __init__(self, box: Deployment, client: Any, path: str, handle: IO[bytes]) -> None:
        self._box, self._client, self._path, self._handle = box, client, path, handle

    def read(self, size: int) -> bytes:
        try:
            return self._handle.read(size)
        except GONE as error:  # not to be taken for an error of the controller's disk
            if isinstance(error, OSError) and self._client.get_transport().is_active():
                raise BoxError(
                    self._box.host.name, f"{self._path} cannot be read ({error})", "see to its disk"
                ) from error
            raise broke_off(self._box.host, error) from error
