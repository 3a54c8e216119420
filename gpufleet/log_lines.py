"""Lines that an engine's log must have, or must not: what a stack's page promises, and for which instances."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator

from gpufleet.recipe import Trait
from gpufleet.schema import Args, Data, Env, Name, OneLine

LONGEST = 300


def _regex(value: str) -> str:
    if not value or len(value) > LONGEST:
        raise ValueError(f"must have 1 to {LONGEST} characters")
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return value


Regex = Annotated[OneLine, AfterValidator(_regex)]


class When(Data):
    """For which instances: all of it must hold; what is left out holds.

    + args: flags with these values; a mapping holds where the flag has at least its keys
    + env: variables with these values
    + traits: one of them
    + families: `architecture.family` of the model; one whose page does not say is in none
    """

    args: Args = {}
    env: Env = {}
    traits: list[Trait] = []
    families: list[Name] = []

    def holds(self, args: Mapping[str, Any], env: Mapping[str, str], traits: Sequence[str], family: str | None) -> bool:
        return (
            _within(self.args, args)
            and _within(self.env, env)
            and (not self.traits or bool(set(self.traits) & set(traits)))
            and (not self.families or family in self.families)
        )


class LogLine(Data):
    """A line of a log, as a regular expression that is looked for in each.

    + means: what is wrong when it is not as it should be
    + when: it counts where one of these holds; none: always
    + unless: it does not where one of these does
    """

    line: Regex
    means: OneLine
    when: list[When] = []
    unless: list[When] = []

    def holds(self, args: Mapping[str, Any], env: Mapping[str, str], traits: Sequence[str], family: str | None) -> bool:
        facts = (args, env, traits, family)
        met = not self.when or any(item.holds(*facts) for item in self.when)
        return met and not any(item.holds(*facts) for item in self.unless)


class Log(Data):
    """`promised` must be there when an instance serves, `forbidden` must not."""

    promised: list[LogLine] = []
    forbidden: list[LogLine] = []


def _within(part: Any, whole: Any) -> bool:
    """Whether a value is the other, or a mapping whose keys the other has, with the same values."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(key in whole and _within(part[key], whole[key]) for key in part)
    return type(part) is type(whole) and bool(part == whole)
