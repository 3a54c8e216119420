"""The page docs/rules.md, made of the rules themselves."""

from __future__ import annotations

import re
from textwrap import fill

from gpufleet.rules.base import RULES, Rule

WIDTH = 120
CHAPTERS = {
    "GF1": "Driver and cards",
    "GF2": "Toolkit, compilers, stacks",
    "GF3": "Links and groups of cards",
    "GF4": "Memory",
    "GF5": "Flags and variables",
    "GF6": "The box itself",
}
HEAD = """\
# Rules

<!-- Made by `python -m gpufleet.rules`; what is written here by hand is lost. -->

A rule looks at the plan of one box before anything on it is touched. An **error** refuses the box: nothing but
`/opt/gpufleet/kit` may be new on it, and the exit code is 3. A **warning** and an **info** are shown, and the box is
deployed. Each finding says cause and remedy; its code leads here. What a box does not tell is no finding.

A rule you know better than: `silence = ["GF603"]`, or its name, `["disk-space"]`, in any layer or a box's data. What is
silenced is counted as silenced, not lost; a rule that does not exist is refused. Which known problem is which rule:
[field problems](field-problems.md).
"""


def page() -> str:
    """All of it, in the order of the codes."""
    parts = [HEAD]
    for prefix, title in CHAPTERS.items():
        parts.append(f"## {title}\n")
        parts += [section(RULES[code]) for code in sorted(RULES) if code.startswith(prefix)]
    return "\n".join(parts)


def section(item: Rule) -> str:
    """One rule: level and cause, remedy, source."""
    first, *more = item.cause.split("\n\n")
    lines = [f"### {item.code} {item.name}", "", _filled(f"**{item.level}** · {first}")]
    for paragraph in more:
        lines += ["", _filled(paragraph)]
    source = re.sub(r"field-problems (\d+)", r"field problem [\1](field-problems.md)", item.source)
    return "\n".join([*lines, "", _filled(f"→ {item.remedy}"), "", _filled(f"Source: {source}."), ""])


def _filled(text: str) -> str:
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
