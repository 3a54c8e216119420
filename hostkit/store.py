"""The box's store: files named by their content, each complete under its name or not there.

`ROOT/<sha256>/<filename>`, readable for everybody; what has come of a file so far lies beside it as `<filename>.part`,
and where that lacks something in the middle, what that is as `<filename>.holes` (hostkit.pieces). The files of models
have a root of their own, on the models' file system, so that a model is made of links to them.
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
MODELS_ROOT = os.path.join(files.ROOT, "models", ".store")
WHEELS, MODELS = "wheels", "models"  # the places of the store
PART, HOLES = ".part", ".holes"
SHA256 = re.compile(r"[0-9a-f]{64}")


class Busy(Exception):
    """Another deploy is writing this file now."""


def root(place: str = WHEELS) -> str:
    """The folder of a place. Raises Failure when there is no such place."""
    try:
        return {WHEELS: ROOT, MODELS: MODELS_ROOT}[place]
    except KeyError:
        raise Failure("{!r} is no place of the store".format(place), "report this")


def path(filename: str, sha256: str, place: str = WHEELS) -> str:
    """Where a file lies. Raises Failure when the name or the hash cannot be one of a file here.

    Two models may have one file under two names: among the models' files the name that is there already counts.
    """
    if not SHA256.fullmatch(sha256) or not is_name(filename):
        raise Failure("{!r} with sha256 {!r} is no file of the store".format(filename, sha256), "report this")
    folder = os.path.join(root(place), sha256)
    others = [] if place == WHEELS or os.path.lexists(os.path.join(folder, filename)) else names(folder)
    return os.path.join(folder, others[0] if others else filename)


def at(wanted: dict) -> str:
    """The path of a file as verbs are told of it: {filename, sha256, place}."""
    return path(wanted["filename"], wanted["sha256"], wanted.get("place", WHEELS))


def names(folder: str) -> list:
    """The files in a folder of the store that have their final name."""
    try:
        return sorted(name for name in os.listdir(folder) if is_name(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_name(filename: str) -> bool:
    plain = filename == os.path.basename(filename) and not filename.startswith(".")
    return bool(filename) and plain and not filename.endswith((PART, HOLES))


def has(filename: str, sha256: str, size: Optional[int] = None, place: str = WHEELS) -> bool:
    """Whether the file is there, by its name and size in bytes; its hash was checked when it got that name."""
    return is_whole(path(filename, sha256, place), size)


def is_whole(at: str, size: Optional[int] = None) -> bool:
    """`has`, by path. One that has holes beside it was found to be damaged, and is being made good."""
    if os.path.lexists(at + HOLES):
        return False
    return os.path.isfile(at) and (size is None or os.path.getsize(at) == size)


def part_size(at: str) -> int:
    """Bytes of the file that came before its transfer broke off; `at`: see `path`."""
    try:
        return os.path.getsize(at + PART)
    except OSError:
        return 0


@contextlib.contextmanager
def held(sha256: str, place: str = WHEELS) -> Iterator[None]:
    """Hold the folder of a file, to write in it. Raises Busy at once when another process does."""
    directory = os.path.join(root(place), sha256)
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
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # now, whoever else has a copy of the descriptor
            os.close(descriptor)


def _is(descriptor: int, directory: str) -> bool:
    """Whether the folder that was locked is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(directory))
    except FileNotFoundError:
        return False
