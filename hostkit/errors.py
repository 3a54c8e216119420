"""The one error of the kit: what is wrong on this box and what to do about it."""

from __future__ import annotations


class Failure(Exception):
    """Ends a verb; the kit prints it as its last line.

    + everywhere: it lies in what was to be done, not in this box: a like box would fail with the same
    """

    def __init__(self, cause: str, remedy: str, everywhere: bool = False) -> None:
        super().__init__(f"{cause}. {remedy}" if remedy else cause)
        self.cause = cause
        self.remedy = remedy
        self.everywhere = everywhere
