"""Parts of a page that are made, between two remarks that its readers do not see; the rest is written by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from gpufleet.errors import ConfigError

BEFORE, AFTER = "<!-- made by `python -m gpufleet.reference`: ", " -->"
END = "<!-- made: end -->"
MADE = re.compile(rf"^{re.escape(BEFORE)}(?P<name>[^\n>]+?){re.escape(AFTER)}\n.*?^{END}$", re.DOTALL | re.MULTILINE)


def renewed(page: str, parts: Mapping[str, str], fresh: Callable[[str], str] | None = None) -> str:
    """The page with each part in its place.

    + fresh: the heading of a part that has no place yet: it is put below it, or with it at the end of the page; None:
      each must have its place

    Raises ConfigError for a place that nothing is made for, and for a part without a place.
    """
    named = [found["name"] for found in MADE.finditer(page)]
    lost = [name for name in parts if name not in named]
    wrong = [f"there is nothing to make as {name!r}: take its two remarks out" for name in named if name not in parts]
    if fresh is None:
        wrong += [f"{name!r} has no place: put {BEFORE}{name}{AFTER} and {END} where it belongs" for name in lost]
    if wrong:
        raise ConfigError(wrong)
    page = MADE.sub(lambda found: _framed(found["name"], parts[found["name"]]), page)
    for name in lost if fresh else []:
        assert fresh
        page = _with(page, fresh(name), _framed(name, parts[name]))
    return page


def _with(page: str, heading: str, part: str) -> str:
    """The page with a new part: below its heading if that is there, else with it at the end."""
    above, found, below = page.partition(f"\n{heading}\n")
    if not found:
        above, below = f"{page.rstrip()}\n", ""
    return f"{above}\n{heading}\n\n{part}\n{below}"


def _framed(name: str, text: str) -> str:
    # A blank line on both sides: without it a table behind the remark is no table.
    body = text.strip("\n")
    return f"{BEFORE}{name}{AFTER}\n\n{body}\n\n{END}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; what would end a cell is escaped."""
    lines = [head, ["---"] * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join("|" + "|".join(f" {cell} " if cell != "---" else cell for cell in line) + "|" for line in lines)


def _cell(text: str) -> str:
    return " ".join(re.sub(r"(?<!\\)\|", r"\\|", text).split())
