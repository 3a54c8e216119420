"""What a rule is, and how all of them are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from gpufleet.errors import ConfigError, nearest
from gpufleet.plan import BoxPlan

Level = Literal["error", "warning", "info"]
Said = Iterator[tuple[str, str]]


@dataclass(frozen=True)
class Finding:
    """What a rule says of a plan: the cause in `message`, what to do in `remedy`."""

    code: str
    level: Level
    message: str
    remedy: str


@dataclass(frozen=True)
class Rule:
    code: str
    level: Level
    ask: Callable[[BoxPlan], Said]


RULES: dict[str, Rule] = {}


def rule(code: str, level: Level) -> Callable[[Callable[[BoxPlan], Said]], Callable[[BoxPlan], Said]]:
    """Register a function that yields (message, remedy) for each thing it finds."""

    def register(ask: Callable[[BoxPlan], Said]) -> Callable[[BoxPlan], Said]:
        RULES[code] = Rule(code, level, ask)
        return ask

    return register


def check(plan: BoxPlan) -> list[Finding]:
    """All findings of a plan, errors first; those the owner silenced are left out.

    Raises ConfigError when `silence` names a code that no rule has.
    """
    unknown = [code for code in plan.settings.silence if code not in RULES]
    if unknown:
        raise ConfigError(f"{plan.name}: silence: unknown rule {code!r}{nearest(code, RULES)}" for code in unknown)
    findings = [
        Finding(item.code, item.level, message, remedy)
        for item in RULES.values()
        if item.code not in plan.settings.silence
        for message, remedy in item.ask(plan)
    ]
    return sorted(findings, key=lambda finding: ("error", "warning", "info").index(finding.level))
