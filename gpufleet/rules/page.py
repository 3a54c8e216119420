"""The page docs/rules.md, made of the rules themselves."""

from __future__ import annotations

import re
from textwrap import fill

from gpufleet.rules.base import RULES, Rule

WIDTH = 120
# `field-problems 29 and 30`: numbers of docs/field-problems.md.
NUMBERS = re.compile(r"field-problems \d+(?:(?:, | and )\d+)*")
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

A rule looks at the plan of one box before any box is touched. An **error** refuses it: nothing is changed, and the
exit code is 3 ([leaving such a box out](reference/settings.md#rollout)). A **warning** is shown, and the box is
deployed; an **info** is shown by `gpufleet plan` only. Each finding says cause and remedy; its code leads here. What a
box does not tell is no finding.

A rule you know better than: `silence = ["GF603"]`, or by its name, `["disk-space"]`, in any layer or a box's data.
`gpufleet plan` says what is silenced, and by which layer. A rule that does not exist is refused. Which known problem is
which rule: [field problems](field-problems.md).
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
    level = f"**{item.level}**" + (f", **{item.deploy_level}** in a deploy" if item.deploy_level else "")
    lines = [f"### {item.code} {item.name}", "", _filled(f"{level} · {first}")]
    for paragraph in more:
        lines += ["", _filled(paragraph)]
    source = NUMBERS.sub(lambda found: re.sub(r"\d+", r"[\g<0>](field-problems.md)", found[0]), item.source)
    source = source.replace("field-problems ", "field problem ")
    return "\n".join([*lines, "", _filled(f"→ {item.remedy}"), "", _filled(f"Source: {source}."), ""])


def _filled(text: str) -> str:
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
