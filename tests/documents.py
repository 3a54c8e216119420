"""The commands that a page shows: lines of its blocks that begin with a program, as a reader types them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("gpufleet", "pyinfra", "pip", "python3", "curl", "cd", "git", ".")
BLOCK = re.compile(r"(?:^ {4}.*\n(?:\n(?= {4}))?)+", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """+ lines: as typed; a line that ends in a backslash has a next one"""

    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def program(self) -> str:
        return self.text.split()[0]


def commands(page: Path) -> list[Command]:
    """In the order of the page; what commands print, and files, are no commands."""
    found: list[Command] = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        lines = [line[4:] for line in block.splitlines()]
        while lines:
            line = lines.pop(0)
            if line.split()[:1] and line.split()[0] in PROGRAMS:
                whole = [line]
                while whole[-1].endswith("\\"):
                    whole.append(lines.pop(0))
                found.append(Command(tuple(whole)))
    return found
