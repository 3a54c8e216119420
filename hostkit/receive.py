"""Files from the controller: their bytes follow the spec on standard input; each is in place only when right."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
from typing import Any, Iterator

from hostkit import files, pieces, store
from hostkit.errors import Failure

BLOCK = 1 << 20
SILENCE_SECONDS = 120  # a controller that lost its network would hold the file for ever


def run(spec: dict) -> dict:
    """Store {filename, sha256, size, offset, place, pieces, holes}, or several such `files`, whose bytes follow one
    after the other.

    + offset: bytes that are here already as a part, and do not follow
    + holes: of a part that lacks something in the middle; only that follows, in order
    Returns {"got": [sha256], "again": {sha256: offset}, "damaged": [sha256], "busy": [sha256],
    "holes": {sha256: [[offset, length]]}}: `again` are those whose part is another than the controller thought, `busy`
    those that another deploy is writing, `holes` what lacks of those of `again` and `damaged` that have most.
    Raises Failure when the bytes end too early (what came is kept as a part) or the disk is full.
    """
    answer: dict = {"got": [], "again": {}, "damaged": [], "busy": [], "holes": {}}
    for wanted in spec.get("files") or [spec]:
        sha256, size = wanted["sha256"], wanted["size"]
        coming = incoming(to_come(wanted), wanted["filename"])
        path, lacks = store.at(wanted), None
        try:
            with store.held(sha256, wanted.get("place", store.WHEELS)):
                what = take(wanted, coming)
                lacks = pieces.read(path, size)
        except store.Busy:
            what = "busy"
        for _ in coming:  # of a file that is not taken
            pass
        if what == "again":
            answer[what][sha256] = store.part_size(path)
        else:
            answer[what].append(sha256)
        if lacks is not None:
            answer["holes"][sha256] = lacks
    return answer


def to_come(wanted: dict) -> int:
    holes = wanted.get("holes")
    return int(wanted["size"] - wanted["offset"]) if holes is None else pieces.total(holes)


def take(wanted: dict, coming: Iterator[bytes]) -> str:
    """Which part of the answer this file belongs to."""
    size, path = wanted["size"], store.at(wanted)
    if store.is_whole(path, size):
        return "got"
    lacks = pieces.read(path, size)
    if lacks != wanted.get("holes") or (lacks is None and store.part_size(path) != wanted["offset"]):
        return "again"
    with files.room(path + store.PART, size):
        found = append(path, coming) if lacks is None else fill(path, wanted, coming)
    return "got" if pieces.settle(path, wanted["sha256"], size, wanted.get("pieces"), found) else "damaged"


def append(path: str, coming: Iterator[bytes]) -> str:
    """The sha256 of the part with what comes."""
    digest = hashlib.sha256()
    with open(path + store.PART, "a+b") as handle:
        handle.seek(0)
        pulse = pieces.Pulse(os.fstat(handle.fileno()).st_size)
        for block in iter(lambda: handle.read(BLOCK), b""):
            digest.update(block)
            pulse.beat(len(block))
        for block in coming:
            digest.update(block)
            handle.write(block)
        handle.flush()
        pieces.safe(handle.fileno())
    return digest.hexdigest()


def fill(path: str, wanted: dict, coming: Iterator[bytes]) -> str:
    """Nothing: the whole has to be read for its sha256."""
    filler = pieces.Filler(path, wanted["size"], wanted["holes"], wanted.get("pieces"))
    with contextlib.closing(filler):
        for block in coming:
            filler.take(block)
    return ""


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
