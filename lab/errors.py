"""The one error of the lab: what was attempted, why it failed, what to do."""

from __future__ import annotations


class LabError(Exception):
    """A failure the user can act on."""

    def __init__(self, cause: str, remedy: str = "") -> None:
        super().__init__(f"{cause}\n  {remedy}" if remedy else cause)
        self.cause = cause
        self.remedy = remedy
