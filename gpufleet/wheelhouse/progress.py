"""What is said while files come: how many of the bytes, how fast, how long to go."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from gpufleet.pace import duration

EVERY_SECONDS = 5.0  # at most one line
WINDOW_SECONDS = 30.0  # the rate is that of the last so many


def size(count: float) -> str:
    """`812 KiB`, `12.3 MiB`, `4.6 GiB`."""
    if count >= 2**30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"


def line(done: int, total: int | None, rate: float, running: list[str]) -> str:
    """`1.2 GiB of 4.6 GiB, 85.0 MiB/s, 41 s to go: torch-2.13.0…whl`.

    + done, total: bytes; total is None when the size of a file is not known
    + rate: bytes per second; 0 when nothing came lately
    + running: names of the files that are on their way
    """
    parts = [
        size(done) if total is None else f"{size(done)} of {size(total)}",
        f"{size(rate)}/s" if rate else "stalled",
    ]
    if rate and total is not None:
        parts.append(f"{duration(max(0, total - done) / rate)} to go")
    more = f" and {len(running) - 2} more" if len(running) > 2 else ""
    return ", ".join(parts) + (f": {', '.join(running[:2])}{more}" if running else "")


class Progress:
    """The state of several downloads; threads tell it, it says a line now and then.

    + sizes: bytes of each file, None where unknown
    + have: bytes that were there before
    """

    def __init__(
        self,
        sizes: Mapping[str, int | None],
        have: Mapping[str, int],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._clock = say, clock
        known = [length for length in sizes.values() if length is not None]
        self._total = sum(known) if len(known) == len(sizes) else None
        self._done = dict(have)
        self._running: dict[str, None] = {}
        self._lock = threading.Lock()
        self._said = clock()
        self._seen: deque[tuple[float, int]] = deque([(clock(), sum(have.values()))])

    def begin(self, name: str) -> None:
        with self._lock:
            self._running[name] = None

    def end(self, name: str) -> None:
        with self._lock:
            self._running.pop(name, None)

    def at(self, name: str, done: int) -> None:
        """A file has `done` bytes by now."""
        with self._lock:
            self._done[name] = done
            now = self._clock()
            if now - self._said < EVERY_SECONDS:
                return
            self._said = now
            total = sum(self._done.values())
            self._seen.append((now, total))
            while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW_SECONDS:
                self._seen.popleft()
            before, bytes_before = self._seen[0]
            rate = max(0.0, (total - bytes_before) / (now - before)) if now > before else 0.0
            text = line(total, self._total, rate, list(self._running))
        self._say(text)
