"""The box's store: files named by their content, each complete under its name or not there.

`ROOT/<sha256>/<filename>`, readable for everybody; what has come of a file so far lies beside it as `<filename>.part`.
Whoever writes a file holds the lock of its folder, and not the box's lock: several files come at a time, for minutes,
while others are given away. The kernel lets go of the lock when its holder is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from typing import Iterator, Optional

from hostkit import files
from hostkit.errors import Failure

ROOT = os.path.join(files.ROOT, "store")
SHA256 = re.compile(r"[0-9a-f]{64}")


class Busy(Exception):
    """Another deploy is writing this file now."""


def path(filename: str, sha256: str) -> str:
    """Where a file lies. Raises Failure when the name or the hash cannot be one of a file here."""
    if not SHA256.fullmatch(sha256) or not is_name(filename):
        raise Failure("{!r} with sha256 {!r} is no file of the store".format(filename, sha256), "report this")
    return os.path.join(ROOT, sha256, filename)


def is_name(filename: str) -> bool:
    plain = filename == os.path.basename(filename) and not filename.startswith(".")
    return bool(filename) and plain and not filename.endswith(".part")


def has(filename: str, sha256: str, size: Optional[int] = None) -> bool:
    """Whether the file is there, by its name and size in bytes; its hash was checked when it got that name."""
    at = path(filename, sha256)
    return os.path.isfile(at) and (size is None or os.path.getsize(at) == size)


def part_size(filename: str, sha256: str) -> int:
    """Bytes of the file that came before its transfer broke off."""
    try:
        return os.path.getsize(path(filename, sha256) + ".part")
    except OSError:
        return 0


@contextlib.contextmanager
def held(sha256: str) -> Iterator[None]:
    """Hold the folder of a file, to write in it. Raises Busy at once when another process does."""
    directory = os.path.join(ROOT, sha256)
    while True:
        os.makedirs(directory, mode=0o755, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(sha256)
            if _is(descriptor, directory):
                yield
                return
        finally:
            os.close(descriptor)


def _is(descriptor: int, directory: str) -> bool:
    """Whether the folder that was locked is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(directory))
    except FileNotFoundError:
        return False
