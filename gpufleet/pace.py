"""How far a long transfer is, in a line now and then: bytes of the total, rate, time to go."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 30.0
MEASURED = 4 << 20  # bytes: the first ones after a wait say nothing of how long the rest takes


class Pace:
    """Takes in how far it is, and says it at most every few seconds.

    + total: bytes; + done: those that were there at the start; + now: seconds of a monotonic clock
    """

    def __init__(self, total: int, done: int, now: float, every_seconds: float = 5.0) -> None:
        self.total, self.every = total, every_seconds
        self.told = now
        self.seen: deque[tuple[float, int]] = deque([(now, done)])

    def line(self, done: int, now: float) -> str | None:
        """A line such as `212 of 2430 MiB, 84 MB/s, 26 s to go`; None when one was said a moment ago."""
        self.seen.append((now, done))
        while len(self.seen) > 2 and now - self.seen[1][0] >= WINDOW_SECONDS:
            self.seen.popleft()
        if now - self.told < self.every:
            return None
        self.told = now
        (begun, before), seconds = self.seen[0], now - self.seen[0][0]
        rate = max(done - before, 0) / seconds if seconds > 0 and begun < now else 0.0
        text = f"{done >> 20} of {self.total >> 20} MiB, {rate / 1e6:.1f} MB/s"
        known = done - before >= MEASURED and rate > 0 and self.total > done
        return f"{text}, {duration((self.total - done) / rate)} to go" if known else text


def duration(seconds: float) -> str:
    """`40 s`, `7 min`, `2 h 5 min`: no finer than what is foretold of a transfer holds."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
