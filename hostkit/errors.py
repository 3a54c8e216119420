"""The one error of the kit: what is wrong on this box and what to do about it."""

from __future__ import annotations


class Failure(Exception):
    """Ends a verb; the kit prints it as its last line."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause}. {remedy}" if remedy else cause)
        self.cause = cause
        self.remedy = remedy
