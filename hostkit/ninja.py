"""How far a build is, by what ninja prints of its steps: `[12/345] Building CUDA object …`."""

from __future__ import annotations

import re
from typing import Optional

EVERY_SECONDS = 15.0
STEP = re.compile(r"\s*\[(\d+)/(\d+)\]")


class Progress:
    """A line of progress every quarter of a minute. It asks no clock: `now` is given, in seconds."""

    def __init__(self, now: float) -> None:
        self.began = self.told = now
        self.done = self.total = 0
        self.first = (now, 0)  # when the count that runs now was seen first, and where it stood

    def line(self, text: str, now: float) -> None:
        """Take a line of the build's output."""
        found = STEP.match(text)
        if not found:
            return
        done, total = int(found.group(1)), int(found.group(2))
        if self.total == 0 or done < self.done:  # a build is several runs of ninja, each with a count of its own
            self.first = (now, done)
        self.done, self.total = done, total

    def due(self, now: float) -> Optional[str]:
        """What to tell now; None while the last line is not old enough."""
        if now - self.told < EVERY_SECONDS:
            return None
        self.told = now
        if not self.total:
            return "being prepared for {}".format(span(now - self.began))
        told = "step {} of {} ({} %)".format(self.done, self.total, 100 * self.done // self.total)
        seen, since = self.done - self.first[1], now - self.first[0]
        if seen and since > 0 and self.done < self.total:
            left = (self.total - self.done) * since / seen
            told += ", {:.1f} a minute, some {} to go".format(60 * seen / since, span(left))
        return told


def span(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 5 min`."""
    if seconds < 60:
        return "{:.0f} s".format(seconds)
    minutes = int(seconds // 60)
    return "{} min".format(minutes) if minutes < 60 else "{} h {} min".format(minutes // 60, minutes % 60)
