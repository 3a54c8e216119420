"""Files from the controller: their bytes follow the spec on standard input; each is in place only when right."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
from typing import Any, Iterator

from hostkit import files, store
from hostkit.errors import Failure

BLOCK = 1 << 20
SILENCE_SECONDS = 120  # a controller that lost its network would hold the file for ever


def run(spec: dict) -> dict:
    """Store {filename, sha256, size, offset}, or several such `files`, whose bytes follow one after the other.

    + offset: bytes that are here already as a part, and do not follow
    Returns {"got": [sha256], "again": {sha256: offset}, "damaged": [sha256], "busy": [sha256]}: `again` are those
    whose part has another size than the controller thought, `busy` those that another deploy is writing.
    Raises Failure when the bytes end too early (what came is kept as a part) or the disk is full.
    """
    answer: dict = {"got": [], "again": {}, "damaged": [], "busy": []}
    for wanted in spec.get("files") or [spec]:
        sha256 = wanted["sha256"]
        coming = incoming(wanted["size"] - wanted["offset"], wanted["filename"])
        try:
            with store.held(sha256):
                what, more = take(wanted, coming)
        except store.Busy:
            what, more = "busy", None
        for _ in coming:  # of a file that is not taken
            pass
        if more is None:
            answer[what].append(sha256)
        else:
            answer[what][sha256] = more
    return answer


def take(wanted: dict, coming: Iterator[bytes]) -> tuple:
    """Which part of the answer this file belongs to, and what is said of it there."""
    filename, sha256, size = wanted["filename"], wanted["sha256"], wanted["size"]
    path = store.path(filename, sha256)
    if store.has(filename, sha256, size):
        return "got", None
    have = store.part_size(filename, sha256)
    if have != wanted["offset"]:
        return "again", have
    part = path + ".part"
    digest = hashlib.sha256()
    with files.room(part, size), open(part, "a+b") as handle:
        handle.seek(0)
        for block in iter(lambda: handle.read(BLOCK), b""):
            digest.update(block)
        for block in coming:
            digest.update(block)
            handle.write(block)
        handle.flush()
        os.fchmod(handle.fileno(), 0o644)
        os.fsync(handle.fileno())
    if digest.hexdigest() != sha256:
        os.unlink(part)
        return "damaged", None
    os.replace(part, path)
    files.sync_directory(os.path.dirname(path))
    return "got", None


def incoming(left: int, filename: str) -> Iterator[bytes]:
    """The next `left` bytes of standard input. Raises Failure when they end, or do not come."""
    size = left
    while left:
        with alarm(filename):
            block = sys.stdin.buffer.read(min(left, BLOCK))
        if not block:
            raise Failure(
                "the connection ended with {} of {} bytes of {} still to come".format(left, size, filename),
                "check the network and deploy again; what came is kept",
            )
        left -= len(block)
        yield block


@contextlib.contextmanager
def alarm(filename: str) -> Iterator[None]:
    """Raises Failure when the block takes longer than SILENCE_SECONDS."""

    def ring(*_: Any) -> None:
        raise Failure(
            "nothing of {} came for {} s".format(filename, SILENCE_SECONDS),
            "check the network and deploy again; what came is kept",
        )

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SILENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
