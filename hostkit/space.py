"""Room for what is installed: how much it takes, and an error that names the file system when there is not enough."""

from __future__ import annotations

import contextlib
import os
from typing import Iterable, Iterator, Optional

from hostkit import files
from hostkit.errors import Failure

MIB = 1024 * 1024
# beside the files themselves: their blocks, directories, what is compiled, the attempt's own scratch files
SPARE = 512 * MIB
FULL = "No space left on device"
FEW = 1000  # inodes; a runtime has some ten thousand files


def unpacked(wheels: Iterable[str]) -> int:
    """Bytes that the files in these wheels take, by the wheels' own tables. Raises Failure for one that is damaged."""
    import zipfile  # most that ask for space have no wheels

    total = 0
    for path in wheels:
        try:
            with zipfile.ZipFile(path) as archive:
                total += sum(entry.file_size for entry in archive.infolist())
        except zipfile.BadZipFile as error:
            raise Failure(
                "{} is no whole wheel: {}".format(os.path.basename(path), error),
                "delete {} on the box, then deploy again: it is fetched anew".format(path),
            )
    return total


def needed(unpacked_bytes: int) -> int:
    """What must be free to install wheels of this size unpacked: a tenth more, since files fill whole blocks."""
    return unpacked_bytes + unpacked_bytes // 10 + SPARE


def require(directory: str, wanted: int, what: str) -> None:
    """Raise Failure unless `wanted` bytes are free where `directory` is."""
    disk = os.statvfs(directory)
    free = disk.f_bavail * disk.f_frsize
    if free < wanted:
        raise full(directory, what, wanted)


def full(directory: str, what: str, wanted: Optional[int] = None) -> Failure:
    """The error of a file system with too little room, told by name."""
    disk = os.statvfs(directory)
    free = "{} MiB free".format(disk.f_bavail * disk.f_frsize // MIB)
    if wanted is None and disk.f_files and disk.f_favail < FEW:  # some file systems count none
        free = "{} free inodes (`df -i`)".format(disk.f_favail)
    need = "; {} needs {} MiB".format(what, wanted // MIB) if wanted is not None else ", too few for {}".format(what)
    return Failure(
        "the file system of {} (mounted at {}) has {}{}".format(directory, mount_point(directory), free, need),
        "make room there (`gpufleet gc` frees what no release names), then deploy again",
    )


@contextlib.contextmanager
def told_when_full(directory: str, what: str) -> Iterator[None]:
    """What in the block finds no room on the disk ends with the error that names the file system."""
    try:
        yield
    except OSError as error:
        if error.errno in files.NO_ROOM:
            raise full(directory, what)
        raise


def mount_point(path: str) -> str:
    path = os.path.realpath(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path
