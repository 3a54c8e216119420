"""A wheel's METADATA without the wheel: the file that an index keeps beside it (PEP 658), else by ranges of bytes."""

from __future__ import annotations

import io
import zipfile
import zlib
from functools import cache
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request

from gpufleet.wheelhouse import web
from gpufleet.wheelhouse.items import FetchError
from hostkit.fetch import Open

MISSING = (403, 404)  # what stores of files answer when there is no such one
BLOCK = 1 << 16


class MetadataError(Exception):
    """The metadata of a wheel cannot be read: why."""


@cache
def metadata(url: str, size: int, indexes: tuple[str, ...] = ()) -> str:
    """The METADATA of the wheel at `url` (http, https or file) of `size` bytes. Raises MetadataError.

    + indexes: addresses that may have a login in them, which is used for what lies on the same host
    """
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            return _inside(zipfile.ZipFile(Path(unquote(parts.path))))
        try:
            with _opener(indexes)(Request(f"{url}.metadata")) as answer:
                return str(answer.read().decode("utf-8", "replace"))
        except HTTPError as error:
            if error.code not in MISSING:
                raise
        return _inside(zipfile.ZipFile(Ranges(url, size, _opener(indexes))))
    except (
        OSError,
        HTTPException,
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        ValueError,
        RuntimeError,
        FetchError,
    ) as error:
        raise MetadataError(" ".join(str(error).split()) or type(error).__name__) from error


@cache
def _opener(indexes: tuple[str, ...]) -> Open:
    """One for all: reading the certificates anew takes longer than what is asked for."""
    return web.opener(list(indexes))


def _inside(wheel: zipfile.ZipFile) -> str:
    with wheel:
        names = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1]
        if len(names) != 1:
            raise MetadataError(f"it has {len(names)} METADATA files")
        return wheel.read(names[0]).decode("utf-8", "replace")


class Ranges(io.BufferedReader):
    """A file on a server that answers with parts of it."""

    def __init__(self, url: str, size: int, open_url: Open) -> None:
        super().__init__(_Parts(url, size, open_url), BLOCK)


class _Parts(io.RawIOBase):
    def __init__(self, url: str, size: int, open_url: Open) -> None:
        super().__init__()
        self.url, self.size, self.at, self.open_url = url, size, 0, open_url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        last = min(self.at + len(buffer), self.size) - 1
        if last < self.at:
            return 0
        wanted = Request(self.url, headers={"Range": f"bytes={self.at}-{last}"})
        with self.open_url(wanted) as answer:
            if answer.status != 206:
                raise MetadataError("the server does not send parts of files, and has no .metadata beside the wheel")
            content = answer.read()
        buffer[: len(content)] = content
        self.at += len(content)
        return len(content)
