"""Large files in pieces of 16 MiB, each with its sha256: what is damaged is found, and only that comes again."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hostkit.pieces import PIECE as PIECE  # the boxes compare files by the same ones

BLOCK = 1 << 20
PIECES = ".pieces"  # after the name of a file: the hashes of its pieces, beside it


@dataclass(frozen=True)
class Sums:
    """What one reading of a file found. + pieces: sha256 of each piece, the last one may be shorter"""

    sha256: str
    size: int
    pieces: tuple[str, ...]


class Hashing:
    """Hashes a file block by block, whole and in pieces; without its pieces it costs half."""

    def __init__(self, *, in_pieces: bool = True) -> None:
        self._whole, self._piece, self._pieces = hashlib.sha256(), hashlib.sha256(), list[str]()
        self._in_pieces, self.size = in_pieces, 0
        self._unread: set[int] = set()

    def update(self, block: bytes) -> None:
        self._whole.update(block)
        rest = memoryview(block)
        while self._in_pieces and rest:
            left = PIECE - self.size % PIECE
            self._piece.update(rest[:left])
            self.size += len(rest[:left])
            if self.size % PIECE == 0:
                self._end()
            rest = rest[left:]
        self.size += len(rest)

    def lost(self, length: int) -> None:
        """So many bytes cannot be read: their pieces, and the whole, are none that is right."""
        first = self.size // PIECE
        self.update(bytes(length))
        self._unread.update(range(first, (self.size - 1) // PIECE + 1))

    def _end(self) -> None:
        self._pieces.append(self._piece.hexdigest())
        self._piece = hashlib.sha256()

    @property
    def sums(self) -> Sums:
        """To be asked once, at the end."""
        if self._in_pieces and self.size % PIECE:
            self._end()
        pieces = ("" if number in self._unread else sha256 for number, sha256 in enumerate(self._pieces))
        return Sums("" if self._unread else self._whole.hexdigest(), self.size, tuple(pieces))


def sums(path: Path, at: Callable[[int], object] = lambda done: None) -> Sums:
    """Read a file once; what the disk cannot read of it counts as wrong. Raises OSError.

    + at: is told the bytes that are read
    """
    hashing = Hashing()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        while hashing.size < size:
            length = min(BLOCK, size - hashing.size)
            try:
                block = os.pread(descriptor, length, hashing.size)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                hashing.lost(length)
            else:
                if not block:
                    break
                hashing.update(block)
            at(hashing.size)
    finally:
        os.close(descriptor)
    return hashing.sums


def keep(path: Path, found: Sums) -> None:
    """Write the hashes of a file's pieces beside it; a file of one piece or less has none. Raises OSError."""
    if found.size <= PIECE:
        return
    place = path.with_name(path.name + PIECES)
    aside = path.with_name(path.name + PIECES + ".part")
    with aside.open("w", encoding="utf-8") as out:
        json.dump({"sha256": found.sha256, "size": found.size, "piece": PIECE, "pieces": found.pieces}, out)
        out.flush()
        os.fsync(out.fileno())
    aside.replace(place)


def kept(path: Path, sha256: str, size: int) -> list[str] | None:
    """The hashes that were written beside a file; None when there are none, or when they are of another one."""
    try:
        found = json.loads(path.with_name(path.name + PIECES).read_text(encoding="utf-8"))
        pieces = [str(each) for each in found["pieces"]]
        same = (found["sha256"], found["size"], found["piece"]) == (sha256, size, PIECE)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pieces if same and len(pieces) == -(-size // PIECE) else None


def holes(size: int, right: Sequence[str], found: Sequence[str]) -> list[tuple[int, int]]:
    """(offset, length) of what is wrong or lacking, neighbours joined.

    + right, found: sha256 of the pieces, as they should be and as they are
    """
    wrong: list[tuple[int, int]] = []
    for number, sha256 in enumerate(right):
        if number < len(found) and found[number] == sha256:
            continue
        offset = number * PIECE
        length = min(PIECE, size - offset)
        if wrong and sum(wrong[-1]) == offset:
            offset, length = wrong[-1][0], wrong.pop()[1] + length
        wrong.append((offset, length))
    return wrong
