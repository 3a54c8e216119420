"""A table of few columns as lines of text, for where it fits; loading rich for it would take longer than most looks."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

GAP = 2  # columns of a terminal


def lines(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str] | None:
    """The titles and the rows, each column as wide as its widest cell; None when a line would be wider than `width`."""
    wide = [max(map(cells, column)) for column in zip(titles, *rows, strict=True)]
    if sum(wide) + GAP * (len(wide) - 1) > width:
        return None
    return [
        (" " * GAP).join(cell + " " * (size - cells(cell)) for cell, size in zip(row, wide, strict=True))
        for row in (titles, *rows)
    ]


def cells(text: str) -> int:
    """How many columns of a terminal a text takes (Unicode Standard Annex 11): wide characters two, marks none."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
