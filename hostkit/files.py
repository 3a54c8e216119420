"""Files on the box: written aside and renamed, never edited in place; the tree's fixed places.

Each look at a box imports this: what a look does not need is imported where it is used (shutil, tempfile and hashlib
together take as long as python3 takes to start).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os

from hostkit.errors import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Optional

ROOT = "/opt/gpufleet"
STATE = "/var/lib/gpufleet"
UNITS = "/etc/systemd/system"
COMPLETE = ".gpufleet-complete"
USER = "gpufleet"


def write(path: str, data: bytes, mode: int = 0o644) -> None:
    """Write `data` to `path` atomically: a reader sees the old file or the new one."""
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    import tempfile

    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".gpufleet-")
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fchmod(handle.fileno(), mode)
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        with_suppressed_unlink(temporary)
        raise
    sync_directory(directory)


def with_suppressed_unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def remove(path: str) -> None:
    """Take away whatever is there, a link itself and not what it leads to."""
    if os.path.islink(path) or not os.path.isdir(path):
        with_suppressed_unlink(path)
    else:
        import shutil

        shutil.rmtree(path, ignore_errors=True)


def sync_directory(directory: str) -> None:
    """Make a rename in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link(target: str, path: str) -> bool:
    """Make `path` a symlink to `target`, atomically. True when something changed."""
    if os.path.islink(path) and os.readlink(path) == target:
        return False
    if os.path.isdir(path) and not os.path.islink(path):
        raise Failure("{} is a directory where a link should be".format(path), "move it away, then deploy again")
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    temporary = os.path.join(directory, ".gpufleet-link-{}".format(os.getpid()))
    with_suppressed_unlink(temporary)
    os.symlink(target, temporary)
    os.replace(temporary, path)
    sync_directory(directory)
    return True


def sha256(path: str) -> Optional[str]:
    """The file's sha256 in hex, None when there is no such file."""
    import hashlib

    digest = hashlib.sha256()
    try:
        with open(path, "rb") as handle:
            for block in iter(lambda: handle.read(1 << 20), b""):
                digest.update(block)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return digest.hexdigest()


NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Full(Failure):
    """There is not the space for a file."""


@contextlib.contextmanager
def room(part: str, size: Optional[int]) -> Iterator[None]:
    """Write `part`, which will have `size` bytes (None: nobody knows), in the block.

    Raises Full when there is not the space; the part goes then, for what else runs on the box needs some too.
    """
    directory = os.path.dirname(part)
    have = os.path.getsize(part) if os.path.exists(part) else 0
    try:
        if size is not None and size - have > free(directory):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield
    except Full:
        with_suppressed_unlink(part)
        raise
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        with_suppressed_unlink(part)
        raise Full(
            "no space in {} for {}{}: {:.1f} MiB are free".format(
                os.path.dirname(directory),
                os.path.basename(part)[: -len(".part")],
                "" if size is None else " ({:.1f} MiB)".format(size / 2**20),
                free(directory) / 2**20,
            ),
            "make room on the box, then deploy again",
        )


def free(directory: str) -> int:
    """Bytes."""
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def complete(directory: str, facts: dict) -> None:
    """Mark a directory as whole; the last thing written into it."""
    os.sync()
    write(os.path.join(directory, COMPLETE), (json.dumps(facts, sort_keys=True) + "\n").encode())


def is_complete(directory: str) -> bool:
    return os.path.isfile(os.path.join(directory, COMPLETE))


def mark(directory: str) -> dict:
    """What the mark of a whole directory says; nothing when it has none, or one that cannot be read."""
    try:
        with open(os.path.join(directory, COMPLETE), encoding="utf-8") as handle:
            found = json.load(handle)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
