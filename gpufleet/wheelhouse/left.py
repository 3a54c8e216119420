"""What lacks of a file that comes over several connections: kept beside its part, for the next try."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

LEFT = ".left"  # after the name of a part: [[offset, length] …] of what lacks of it
KEEP_SECONDS = 5.0  # what came since is fetched once more when the process is killed

Ranges = Sequence[tuple[int, int]]  # offset and length


def read(part: Path, size: int) -> Ranges | None:
    """What lacks of a part of a file of `size` bytes; None where that is what is after its end."""
    try:
        found = json.loads(_beside(part).read_text(encoding="utf-8"))
        ranges = [(int(offset), int(length)) for offset, length in found["left"]]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    fits = all(offset >= 0 and length > 0 and offset + length <= size for offset, length in ranges)
    return ranges if fits and found.get("size") == size and part.exists() else None


def write(part: Path, size: int, ranges: Ranges) -> None:
    """Raises OSError."""
    aside = part.with_name(part.name + LEFT + ".part")
    aside.write_text(json.dumps({"size": size, "left": list(ranges)}), encoding="utf-8")
    aside.replace(_beside(part))


def drop(part: Path) -> None:
    _beside(part).unlink(missing_ok=True)


def here(part: Path, size: int | None) -> int:
    """Bytes of the file that the part has. Raises OSError when there is no part."""
    ranges = read(part, size) if size is not None else None
    return part.stat().st_size if ranges is None else (size or 0) - total(ranges)


def total(ranges: Ranges) -> int:
    return sum(length for _, length in ranges)


def cut(ranges: Ranges, longest: int) -> Ranges:
    """The same bytes in stretches of `longest` at most."""
    return [
        (at, min(longest, offset + length - at))
        for offset, length in ranges
        for at in range(offset, offset + length, longest)
    ]


class Coming:
    """Counts what comes of stretches of a file, each in order, several at once.

    + tell: told the bytes of them that are here, and whether a stretch has ended with them
    + kept: (part, size of the file) where what lacks is to be kept beside the part
    """

    def __init__(
        self, stretches: Ranges, descriptor: int, tell: Callable[[int, bool], object], kept: tuple[Path, int] | None
    ) -> None:
        self._lengths = dict(stretches)
        self._done = dict.fromkeys(self._lengths, 0)
        self._descriptor, self._tell, self._kept = descriptor, tell, kept
        self._lock, self._keeping, self._since = threading.Lock(), threading.Lock(), time.monotonic()
        self._keep()  # before the first byte is written out of order

    def came(self, offset: int, count: int) -> None:
        """More bytes of the stretch that begins at `offset` are written. Raises OSError."""
        with self._lock:
            self._done[offset] += count
            whole = self._done[offset] == self._lengths[offset]
            self._tell(sum(self._done.values()), whole)
        late = time.monotonic() - self._since >= KEEP_SECONDS
        if (whole or late) and self._keeping.acquire(blocking=whole):
            try:
                self._since = time.monotonic()
                self._keep()
            finally:
                self._keeping.release()

    def end(self) -> int:
        """Bytes that came, when no more do."""
        with self._keeping, suppress(OSError):  # a full disk was said before
            self._keep()
        return sum(self._done.values())

    def _keep(self) -> None:
        if self._kept is None:
            return
        with self._lock:
            rest = list(self._rest())
        os.fdatasync(self._descriptor)  # what is said to be here is on the disk
        write(*self._kept, rest)

    def _rest(self) -> Iterable[tuple[int, int]]:
        for offset, length in self._lengths.items():
            if (done := self._done[offset]) < length:
                yield offset + done, length - done


def _beside(part: Path) -> Path:
    return part.with_name(part.name + LEFT)
