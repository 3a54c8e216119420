"""Tables on a terminal or in a pipe, by rich."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console


class Screen(Console):
    """As rich has it, but that a program whose output nobody reads any more is not ended here, and not with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def screen(stream: TextIO | None = None, width: int = 200) -> Screen:
    """For tables and lines; `width` counts where it is no terminal."""
    file = stream or sys.stdout
    return Screen(file=file, highlight=False, soft_wrap=True, width=None if file.isatty() else width)
