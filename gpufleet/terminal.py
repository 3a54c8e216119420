"""What goes to a terminal: text of boxes, files and owners as it is, never as commands to the terminal or to rich."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

PIPE_CLOSED = 141  # as a shell says of a program that SIGPIPE ended: `gpufleet plan … | head`
LONGEST = 2000  # characters of a message
# Control characters (C0 but for tab and newline, DEL, C1), those that turn the direction of a line, lone surrogates.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """The text with a mark in place of each character that a terminal would obey, not show."""
    return _HARMFUL.sub("\ufffd", text)


def one_line(text: str) -> str:
    """The same on one line: a compiler's last words on a box may hold anything."""
    return plain(" ".join(text.split()))


def told(text: str) -> str:
    """A cause and what to do, on one line, its middle left out where it is too long to be read: both may quote what a
    stranger's file has in place of a name."""
    line = plain(re.sub(r"\s*[\r\n\x85\u2028\u2029]\s*", " ", text.strip()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"


def add_row(table: Table, *cells: str) -> None:
    """A row whose cells are shown letter by letter: a card's name may have brackets, which rich reads as markup."""
    from rich.text import Text

    table.add_row(*(Text(plain(cell)) for cell in cells))


class _Unread(io.FileIO):
    """What is printed when nobody reads any more goes nowhere: a closed pipe, a terminal that is gone, a full disk."""

    def write(self, data: Any) -> int:
        try:
            return int(super().write(data) or 0)
        except OSError:
            return len(memoryview(data).cast("B"))


def outlive_readers() -> None:
    """For what changes something: it goes on, and ends as it went, whatever becomes of its output."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            number = stream.fileno()
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue
        raw = io.BufferedWriter(_Unread(number, "wb", closefd=False))
        way = {"encoding": stream.encoding, "errors": stream.errors, "line_buffering": True}
        setattr(sys, name, io.TextIOWrapper(raw, **way))


def prepare() -> None:
    """Make output possible whatever it goes to: closed by the caller, or in an encoding without our letters."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:  # the number, too, for programs that this one starts or becomes
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
