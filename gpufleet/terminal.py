"""What goes to a terminal: text of boxes, files and owners as it is, never as commands to the terminal or to rich."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_CLOSED = 141  # as a shell says of a program that SIGPIPE ended: `gpufleet plan … | head`
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
    table.add_row(*(Text(plain(cell)) for cell in cells))


class Screen(Console):
    """As rich has it, but that a program whose output nobody reads any more is not ended here, and not with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def screen(stream: TextIO | None = None, width: int = 200) -> Screen:
    """For tables and lines; `width` counts where it is no terminal."""
    file = stream or sys.stdout
    return Screen(file=file, highlight=False, soft_wrap=True, width=None if file.isatty() else width)


def nobody_reads() -> None:
    """What is still printed goes nowhere: whoever read it has gone. That is no failure of what is being done."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())
        except (OSError, ValueError):
            pass
    os.close(nowhere)


def prepare() -> None:
    """Make output possible whatever it goes to: closed by the caller, or in an encoding without our letters."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
