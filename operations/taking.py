"""What a box has made, taken into the controller's store, so that every like box gets the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

from paramiko import SSHException

from gpufleet.errors import BoxError
from gpufleet.wheelhouse import built as records
from gpufleet.wheelhouse.items import FetchError, Item
from gpufleet.wheelhouse.store import Store

if TYPE_CHECKING:
    from operations.deployment import Deployment


def take(box: Deployment, made: Mapping[str, Any], store: Store, name: str) -> Item:
    """Copy {filename, sha256, size, …} from the box's store, and remember it as `name`. Raises BoxError."""
    try:
        with _opened(box, f"{records.STORE}/{made['sha256']}/{made['filename']}") as content:
            return records.keep(store, name, made, content, box.host.name)
    except FetchError as error:
        raise BoxError(box.host.name, str(error).rstrip("."), "mend that, then deploy again") from error


def _opened(box: Deployment, path: str) -> IO[bytes]:
    """A file of the box, read over its SSH connection. Raises BoxError."""
    try:
        client: Any = getattr(box.host.connector, "client", None)
        handle = client.open_sftp().open(path, "rb")
        handle.prefetch()
    except (SSHException, OSError, EOFError) as error:
        raise BoxError(box.host.name, f"{path} cannot be read by SFTP ({error})", "allow SFTP on the box") from error
    opened: IO[bytes] = handle
    return opened
