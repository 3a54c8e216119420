"""Where a box's file system starts, so that a test can hand the probe a box made of a few files."""

from __future__ import annotations

import os


class Roots:
    """Every path the probe reads goes through here; absolute paths in, paths below the base out."""

    def __init__(self, base: str = "/") -> None:
        self.base = base

    def path(self, absolute: str) -> str:
        return os.path.join(self.base, absolute.lstrip("/"))

    def text(self, absolute: str) -> str:
        with open(self.path(absolute), encoding="utf-8", errors="replace") as file:
            return file.read()

    def text_or_none(self, absolute: str) -> str | None:
        """For what a box may lack or refuse, such as a process that has just ended."""
        try:
            return self.text(absolute)
        except OSError:
            return None

    def names(self, absolute: str) -> list[str]:
        """The sorted entries of a directory; none when there is no such directory."""
        try:
            return sorted(os.listdir(self.path(absolute)))
        except (FileNotFoundError, NotADirectoryError):
            return []
