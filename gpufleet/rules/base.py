"""What a rule is, and how all of them are asked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from gpufleet.errors import ConfigError, nearest
from gpufleet.plan import BoxPlan

Level = Literal["error", "warning", "info"]
LEVELS: tuple[Level, ...] = ("error", "warning", "info")
# (message, remedy), or with a level of this one finding that differs from the rule's.
Said = Iterator[tuple[str, str] | tuple[str, str, Level]]


@dataclass(frozen=True)
class Finding:
    """What a rule says of a plan: the cause in `message`, what to do in `remedy`."""

    code: str
    level: Level
    message: str
    remedy: str
    name: str = ""

    @property
    def label(self) -> str:
        """`GF604 port-taken`: the code to look up, the name to understand it by."""
        return f"{self.code} {self.name}".strip()


@dataclass(frozen=True)
class Rule:
    """One known problem.

    + code: stable, never used again for another problem
    + name: the same to be read; `silence` takes either
    + level: of its findings, unless one says otherwise
    + source: where the problem was seen or is described
    + remedy: what helps in general; each finding has its own, exact one
    + deploy_level: of its findings when the plan is about to be carried out, where that differs
    """

    code: str
    name: str
    level: Level
    source: str
    remedy: str
    ask: Callable[[BoxPlan], Said]
    deploy_level: Level | None = None

    @property
    def cause(self) -> str:
        """Why it is a problem, in paragraphs of one line each: the function's docstring."""
        paragraphs = (inspect.getdoc(self.ask) or "").split("\n\n")
        return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

    def findings(self, plan: BoxPlan, deploying: bool = False) -> Iterator[Finding]:
        usual = self.deploy_level if deploying and self.deploy_level else self.level
        for message, remedy, *level in self.ask(plan):
            yield Finding(self.code, level[0] if level else usual, message, remedy, self.name)


RULES: dict[str, Rule] = {}


def rule(
    code: str, name: str, *, level: Level, source: str, remedy: str, deploy_level: Level | None = None
) -> Callable[[Callable[[BoxPlan], Said]], Callable[[BoxPlan], Said]]:
    """Register a function that yields (message, remedy) for each thing it finds. Raises ValueError for a used name."""

    def register(ask: Callable[[BoxPlan], Said]) -> Callable[[BoxPlan], Said]:
        if code in RULES or name in {known.name for known in RULES.values()}:
            raise ValueError(f"two rules are called {code} {name}")
        RULES[code] = Rule(code, name, level, source, remedy, ask, deploy_level)
        return ask

    return register


def check(plan: BoxPlan, deploying: bool = False) -> list[Finding]:
    """All findings of a plan, errors first; those the owner silenced are left out.

    + deploying: the plan is about to be carried out, which some rules refuse that let it be looked at
    Raises ConfigError when `silence` names a rule that does not exist.
    """
    silent = _silent(plan)
    return _ask(plan, [item for item in RULES.values() if item.code not in silent], deploying)


def silenced(plan: BoxPlan) -> list[Finding]:
    """What `check` left out, errors first: a silenced finding is shown as such, not lost. Raises as `check` does."""
    silent = _silent(plan)
    return _ask(plan, [item for item in RULES.values() if item.code in silent])


def silenced_by(plan: BoxPlan) -> str:
    """The layer that silences: a file of group_data, the inventory, `--data`."""
    return plan.because.get("silence", "settings")


def _ask(plan: BoxPlan, rules: list[Rule], deploying: bool = False) -> list[Finding]:
    # Of a stack or a toolkit the same is found for each instance that has it: said once.
    findings = dict.fromkeys(finding for item in rules for finding in item.findings(plan, deploying))
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def _silent(plan: BoxPlan) -> set[str]:
    """The codes of the rules that `silence` names."""
    codes = {name: item.code for item in RULES.values() for name in (item.code, item.name)}
    unknown = [word for word in plan.settings.silence if word not in codes]
    if unknown:
        names = [item.name for item in RULES.values()]
        raise ConfigError(
            f"{plan.name}: silence: unknown rule {word!r}{_hint(word, names)} (set in {silenced_by(plan)})"
            for word in unknown
        )
    return {codes[word] for word in plan.settings.silence}


def _hint(word: str, names: list[str]) -> str:
    """The nearest rule; a list of all of them would help nobody."""
    found = nearest(word, [*RULES, *names])
    return found if "did you mean" in found else "; docs/rules.md has all of them"
