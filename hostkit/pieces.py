"""Large files piece by piece: what is damaged in one, and how only that comes again.

The controller knows the sha256 of each 16 MiB of a file. A file whose own hash is wrong is compared with them: what is
good stays as `<filename>.part`, and `<filename>.holes` says what lacks, as JSON [[offset, length], …] of whole pieces.
`.holes` is written before the part and removed last. Wherever a kill or a power cut comes between, nothing false
follows: the final name is given only to what has the right hash as a whole, and what has not is compared once more.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from typing import Iterator, List, Optional

from hostkit import events, files, space, store
from hostkit.store import HOLES, PART

PIECE = 16 << 20
BLOCK = 1 << 20
EVERY_SECONDS = 5.0

Holes = List[List[int]]  # [offset, length], in order


def read(path: str, size: Optional[int]) -> Optional[Holes]:
    """What the part of a file lacks in the middle; None where it is an ordinary one, or there is none."""
    try:
        with open(path + HOLES, encoding="utf-8") as handle:
            found = [[int(offset), int(length)] for offset, length in json.load(handle)]
        return found if os.path.getsize(path + PART) == size else None
    except (OSError, ValueError, TypeError):
        return None


def write(path: str, holes: Holes) -> None:
    files.write(path + HOLES, json.dumps(holes).encode())


def total(holes: Holes) -> int:
    return sum(length for _, length in holes)


def span(index: int, size: int) -> "tuple[int, int]":
    """(offset, length) of a piece of a file of `size` bytes; the last one is shorter."""
    return index * PIECE, min(PIECE, size - index * PIECE)


def fit(pieces: Optional[list], size: Optional[int]) -> bool:
    """Whether these hashes can be those of a file of this size."""
    return bool(pieces) and size is not None and len(pieces or []) == -(-size // PIECE)


def damaged(at: str, size: int, pieces: list) -> Holes:
    """What of a file is not what its pieces' hashes say, or cannot be read; all that lies beyond its end is."""
    holes: Holes = []
    pulse = Pulse(size)
    with open(at, "rb") as handle:
        for index, sha256 in enumerate(pieces):
            offset, length = span(index, size)
            found = hashlib.sha256()
            try:
                handle.seek(offset)
                for block in blocks(handle, length):
                    found.update(block)
                    pulse.beat(len(block))
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
            if found.hexdigest() != sha256:
                add(holes, offset, length)
    return holes


def add(holes: Holes, offset: int, length: int) -> None:
    """Lengthen the last hole when the next one follows on it."""
    if holes and sum(holes[-1]) == offset:
        holes[-1][1] += length
    else:
        holes.append([offset, length])


def blocks(handle: "object", length: int) -> Iterator[bytes]:
    while length:
        block = handle.read(min(length, BLOCK))  # type: ignore[attr-defined]
        if not block:
            return
        length -= len(block)
        yield block


def is_right(at: str, wanted: str) -> bool:
    """Whether a file has this sha256; not when the disk cannot read it."""
    try:
        return sha256(at) == wanted
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return False


def sha256(at: str) -> str:
    """Of a file that takes minutes to read: it tells that it goes on. Raises OSError."""
    digest = hashlib.sha256()
    with open(at, "rb") as handle:
        pulse = Pulse(os.fstat(handle.fileno()).st_size)
        for block in iter(lambda: handle.read(BLOCK), b""):
            digest.update(block)
            pulse.beat(len(block))
    return digest.hexdigest()


class Pulse:
    """Tells the controller now and then how far the reading of a file is: silence would count as a lost box."""

    def __init__(self, size: int) -> None:
        self.size, self.done, self.told = size, 0, time.monotonic()

    def beat(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self.told >= EVERY_SECONDS:
            self.told = now
            events.emit("progress", read=self.done, of=self.size)


def open_up(source: str, path: str, size: int, pieces: list) -> Holes:
    """Make a part with holes of a damaged file, whose store path is `path`; `source` may be that, or a link elsewhere.

    The bytes are copied: a service may have the file open, and what it reads is never written to. Where nothing of it
    is good, there is no part. Raises Failure when there is no room for the copy.
    """
    holes = damaged(source, size, pieces)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    files.with_suppressed_unlink(path + PART)
    if total(holes) < size:
        write(path, holes)
        copy(source, path, size, holes)
    if source == path:
        os.unlink(path)
    if total(holes) == size:
        files.with_suppressed_unlink(path + HOLES)
    files.sync_directory(os.path.dirname(path))
    return holes


def copy(source: str, path: str, size: int, holes: Holes) -> None:
    """What is good of `source` into the part."""
    name, directory = os.path.basename(path), os.path.dirname(path)
    space.require(directory, size, "a copy of {}, which is damaged".format(name))
    with space.told_when_full(directory, name), open(source, "rb") as old, open(path + PART, "wb") as new:
        pulse = Pulse(size)
        for offset, length in (span(index, size) for index in range(-(-size // PIECE))):
            if not inside(offset, holes):
                old.seek(offset)
                new.seek(offset)
                for block in blocks(old, length):
                    new.write(block)
                    pulse.beat(len(block))
        new.truncate(size)
        new.flush()
        safe(new.fileno())


def safe(descriptor: int) -> None:
    """What is written is readable for everybody, and on the disk."""
    os.fchmod(descriptor, 0o644)
    os.fsync(descriptor)


def settle(path: str, sha256_wanted: str, size: Optional[int], pieces: Optional[list], found: str = "") -> bool:
    """Give the part its final name. False when its hash is wrong: then the good pieces stay, or nothing does.

    + found: its sha256, when that is known already
    """
    part, directory = path + PART, os.path.dirname(path)
    if (found or sha256(part)) == sha256_wanted:
        with open(part, "rb") as handle:
            safe(handle.fileno())
        os.replace(part, path)
        files.sync_directory(directory)
        whole(path)
        return True
    holes = damaged(part, size or 0, pieces or []) if fit(pieces, size) else []
    if not holes or total(holes) == size:  # its pieces say nothing against it, or nothing for it
        files.with_suppressed_unlink(part)
        drop_holes(path)
    else:
        with open(part, "r+b") as handle:
            handle.truncate(size)
            safe(handle.fileno())
        write(path, holes)
    return False


def whole(path: str) -> None:
    """The file at `path` is right: what lies beside it of earlier tries goes, and its holes last."""
    directory = os.path.dirname(path)
    rest = sorted(name for name in os.listdir(directory) if not store.is_name(name))
    for name in sorted(rest, key=lambda name: name.endswith(HOLES)):
        os.unlink(os.path.join(directory, name))
    if rest:
        files.sync_directory(directory)


def drop_holes(path: str) -> None:
    if os.path.lexists(path + HOLES):
        os.unlink(path + HOLES)
        files.sync_directory(os.path.dirname(path))


class Filler:
    """Puts what comes into the holes of a part, in order; a piece counts when its hash is right, and is on the disk."""

    def __init__(self, path: str, size: int, holes: Holes, pieces: Optional[list]) -> None:
        self.path, self.size = path, size
        self.pieces = pieces if fit(pieces, size) else None
        self.waiting = [span(index, size) for index in range(-(-size // PIECE)) if inside(index * PIECE, holes)]
        self.bad: Holes = []
        self.lacks = sum(length for _, length in self.waiting)  # bytes, with those that came damaged
        self.handle = open(path + PART, "r+b")  # noqa: SIM115 - closed by `close`
        self.digest, self.done = hashlib.sha256(), 0  # of the piece that comes now

    def left(self) -> Holes:
        """What lacks still, with what came damaged."""
        holes: Holes = []
        for offset, length in sorted([*map(tuple, self.bad), *self.waiting]):
            add(holes, offset, length)
        return holes

    def here(self) -> int:
        """Bytes of the file that are here."""
        return self.size - self.lacks + self.done

    def take(self, block: bytes) -> None:
        while block:
            offset, length = self.waiting[0]
            now = block[: length - self.done]
            block = block[len(now) :]
            self.handle.seek(offset + self.done)
            self.handle.write(now)
            self.digest.update(now)
            self.done += len(now)
            if self.done == length:
                self.piece_ended(offset, length)

    def piece_ended(self, offset: int, length: int) -> None:
        self.waiting.pop(0)
        if self.pieces and self.digest.hexdigest() != self.pieces[offset // PIECE]:
            self.bad.append([offset, length])
        else:
            self.lacks -= length
            self.handle.flush()
            os.fsync(self.handle.fileno())
            write(self.path, self.left())
        self.digest, self.done = hashlib.sha256(), 0

    def close(self) -> None:
        self.handle.close()


def inside(offset: int, holes: Holes) -> bool:
    return any(start <= offset < start + length for start, length in holes)
