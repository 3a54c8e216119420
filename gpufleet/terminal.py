"""What goes to a terminal: text of boxes, files and owners as it is, never as commands to the terminal or to rich."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

# Control characters (C0 but for tab and newline, DEL, C1), those that turn the direction of a line, lone surrogates.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """The text with a mark in place of each character that a terminal would obey, not show."""
    return _HARMFUL.sub("\ufffd", text)


def one_line(text: str) -> str:
    """The same on one line: a compiler's last words on a box may hold anything."""
    return plain(" ".join(text.split()))


def add_row(table: Table, *cells: str) -> None:
    """A row whose cells are shown letter by letter: a card's name may have brackets, which rich reads as markup."""
    from rich.text import Text

    table.add_row(*(Text(plain(cell)) for cell in cells))


def prepare() -> None:
    """Make output possible whatever it goes to: closed by the caller, or in an encoding without our letters."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
