"""Files from where the controller says: another box, or an address outside."""

from __future__ import annotations

import contextlib
import os
import time
import urllib.request
from typing import Any, Optional
from urllib.parse import urlsplit

from hostkit import events, fetch, fetch_range, files, pieces, store
from hostkit.errors import Failure

EVERY_SECONDS = 1.0
WINDOW_SECONDS = 20.0
PEER_TRIES, PEER_SECONDS = 1, 8  # another source is soon found, and the part goes on from there


class Slow(Failure):
    """The source gives less than it should."""


class Meter:
    """Counts what comes, tells the controller, and gives up on a source that is too slow.

    + total: bytes of all files of this pull
    + least: bytes per second, as the mean of 20 s
    """

    def __init__(self, total: int, least: Optional[float]) -> None:
        self.total, self.least = total, least
        self.before = self.done = 0  # of the files before, and with the one that comes now
        self.begun = self.told = self.since = time.monotonic()
        self.start: Optional[int] = None  # what was there already: it is no part of the rate
        self.then = 0

    def progress(self, done: int) -> None:
        """`done`: bytes that are here of the file that comes now."""
        self.done = self.before + done
        now = time.monotonic()
        if self.start is None:
            self.start = self.then = self.done
        self.then = min(self.then, self.done)  # what came damaged does not count any more
        if now - self.since >= WINDOW_SECONDS:
            rate = (self.done - self.then) / (now - self.since)
            self.since, self.then = now, self.done
            if self.least and rate < self.least:
                raise Slow("it gives only {:.0f} kB/s".format(rate / 1e3), "see what slows it down")
        if now - self.told >= EVERY_SECONDS:
            self.told = now
            self.tell(now)

    def file_ended(self, size: int) -> None:
        self.before += size
        self.done = self.before

    def tell(self, now: float) -> None:
        rate = (self.done - (self.start or 0)) / max(now - self.begun, 1e-3)
        left = (self.total - self.done) / rate if rate > 0 and self.total else None
        events.emit("progress", done=self.done, total=self.total, rate=round(rate), seconds_left=left and round(left))


def run(spec: dict) -> dict:
    """Get `files` [{filename, sha256, size or None, urls, place, pieces}], each from the first address that has it.

    + peer: the addresses are one other box's: no proxy, little patience, and the first failure ends it
    + least: bytes per second below which a source is given up
    Returns {"got": [sha256], "failed": {sha256: {"cause", "wrong"}}, "busy": [sha256]}; `wrong`: what came had
    another hash; of a file with `pieces` the good ones are kept, and only the others come from the next address.
    Raises Failure when the disk is full.
    """
    if spec.get("peer"):
        os.environ["no_proxy"] = "*"  # it is the local network
    answer: dict = {"got": [], "failed": {}, "busy": []}
    meter = Meter(sum(wanted.get("size") or 0 for wanted in spec["files"]), spec.get("least"))
    for wanted in spec["files"]:
        sha256 = wanted["sha256"]
        try:
            with store.held(sha256, wanted.get("place", store.WHEELS)):
                failed = take(wanted, meter, bool(spec.get("peer")))
        except store.Busy:
            answer["busy"].append(sha256)
            continue
        if failed:
            answer["failed"][sha256] = failed
            if spec.get("peer") and not failed["wrong"]:
                break  # each of the others would have to wait for it as long
        else:
            answer["got"].append(sha256)
            meter.file_ended(wanted.get("size") or 0)
    return answer


def impatient(request: urllib.request.Request) -> Any:
    return urllib.request.urlopen(request, timeout=PEER_SECONDS)


def take(wanted: dict, meter: Meter, peer: bool) -> Optional[dict]:
    """Fetch one file; what went wrong, None when it is here."""
    filename, size, path = wanted["filename"], wanted.get("size"), store.at(wanted)
    if store.is_whole(path, size):
        return None
    patience: dict = {"tries": PEER_TRIES, "open_url": impatient} if peer else {}
    causes, wrong = [], False
    for url in wanted["urls"]:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with files.room(path + store.PART, size):
                bring(url, path, wanted, meter, patience)
            return None
        except files.Full:
            raise  # no other source helps
        except fetch.Wrong as failure:
            wrong, cause = True, failure.cause
        except Failure as failure:
            cause = failure.cause
        # the address of a peer holds its token
        causes.append("{}: {}".format(urlsplit(url).netloc, cause.replace(url, filename)) if peer else cause)
    return {"cause": "; ".join(causes) or "there is no address to fetch it from", "wrong": wrong}


def bring(url: str, path: str, wanted: dict, meter: Meter, patience: dict) -> None:
    """One file from one address. Raises Failure, fetch.Wrong when it has another hash."""
    sha256, size, hashes = wanted["sha256"], wanted.get("size"), wanted.get("pieces")
    holes = pieces.read(path, size)
    if holes is None and not pieces.fit(hashes, size):
        fetch.fetch_file(url, path, sha256, size, meter.progress, **patience)
        pieces.whole(path)
        return
    if holes is None:
        options = {"open_url": fetch.plain_open, "tries": fetch.TRIES, **patience}
        fetch.fetch_part(url, path + store.PART, size, meter.progress, **options)
        if pieces.settle(path, sha256, size, hashes):
            return
        holes = pieces.read(path, size)  # it may lie in what was here before: they come once more from there
    if holes is not None:
        fill(url, path, wanted, holes, meter, patience)
        if pieces.settle(path, sha256, size, hashes):
            return
    raise fetch.Wrong(
        "{} has another hash than the pinned {}".format(url, sha256),
        "the source changed or the download was damaged: try again; if it stays, check what was pinned",
    )


def fill(url: str, path: str, wanted: dict, holes: pieces.Holes, meter: Meter, patience: dict) -> None:
    """What lacks in the middle. A piece that comes damaged stays a hole."""
    with contextlib.closing(pieces.Filler(path, wanted["size"], holes, wanted.get("pieces"))) as filler:
        meter.progress(filler.here())

        def take(block: bytes) -> None:
            filler.take(block)
            meter.progress(filler.here())

        for offset, length in holes:
            fetch_range.fetch_range(url, offset, length, take, **patience)
