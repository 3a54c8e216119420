"""Plans of whole fleets with what the rules say of them: from kept facts, or from a topology scenario."""

from __future__ import annotations

import errno
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufleet import catalogue, known, paths, picture, scenario, waves
from gpufleet.errors import ConfigError
from gpufleet.fleet import Fleet
from gpufleet.inventory import from_file, incomplete
from gpufleet.layers import checked
from gpufleet.models import Model
from gpufleet.plan import Box, BoxPlan, plan_box
from gpufleet.rules import Finding, check, silenced
from gpufleet.scenario import Scenario
from gpufleet.schema import NAME
from gpufleet.stacks import Stack

OPTION = "--set"
SVG_MENDS = {
    errno.ENOENT: "give a file in a folder that is there",
    errno.ENOTDIR: "give a file in a folder that is there",
    errno.ENOSPC: "free space there, or give a file elsewhere",
}
WORDS = {"true": True, "false": False, "none": None, "null": None}


@dataclass(frozen=True)
class Planned:
    """The plan of a box, what the rules say of it, and what they would say had the owner not silenced them."""

    plan: BoxPlan
    findings: list[Finding]
    silenced: list[Finding]

    @property
    def refused(self) -> bool:
        return any(finding.level == "error" for finding in self.findings)


def checked_plan(plan: BoxPlan) -> Planned:
    """A plan with its findings. Raises ConfigError when `silence` names no rule."""
    return Planned(plan, check(plan), silenced(plan))


def overrides(given: Sequence[str], models: Sequence[str]) -> dict[str, Any]:
    """The settings of `--set KEY=VALUE` and `--model NAME`. Raises ConfigError for what is no setting.

    A value is JSON, or True, False, None, or else text (of a variable always text; `none` is a value of
    host.toolkit); a dotted key goes into a mapping.
    """
    values: dict[str, Any] = {"serve": list(models)} if models else {}
    problems = [
        f"--model {name!r} is no name of a page in files/models; one model each, and for another one write a page: "
        "docs/how-to/serve-a-model.md"
        for name in models
        if not re.fullmatch(NAME, name)
    ]
    for item in given:
        key, equals, text = item.partition("=")
        *parents, last = key.split(".")
        if not equals or not all([*parents, last]):
            problems.append(f"{OPTION} {item!r}: write KEY=VALUE, such as serve_args.max-model-len=8192")
            continue
        branch = values
        for parent in parents:
            branch = branch.setdefault(parent, {})
            if not isinstance(branch, dict):
                problems.append(f"{OPTION} {item!r}: {parent} was given another value before")
                branch = {}
        as_text = parents[:1] == ["serve_env"] or item == "host.toolkit=none"
        branch[last] = text if as_text else _value(text)
    if problems:
        raise ConfigError(problems)
    return checked(values, OPTION)


def _value(text: str) -> Any:
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def of_topology(page: Scenario, source: str, given: Mapping[str, Any]) -> list[Planned]:
    """The plan of a scenario's box; an owner's catalogues of the working directory count, its group_data does not.

    + source: the scenario's file, as the reason of what it says
    Raises ConfigError.
    """
    facts = scenario.facts_of(page)
    stacks = catalogue.load(Stack, "stack", paths.stack_folders(Path.cwd()))
    models = catalogue.load(Model, "model", paths.model_folders(Path.cwd()))
    if problems := incomplete(stacks):
        raise ConfigError(problems)
    data = {"expect": page.expect.model_dump(exclude_unset=True)} if page.expect.model_fields_set else {}
    box = Box(facts["hostname"], data, (), source)
    return [checked_plan(plan_box(box, facts, {}, stacks, models, given, given_by=OPTION))]


def of_inventory(path: Path, given: Mapping[str, Any], limit: Sequence[str]) -> list[Planned]:
    """The plans of an inventory's boxes, from the facts that were kept.

    Raises ConfigError, also for a box that nothing is known of, and for what a deploy of them would refuse.
    """
    fleet = seen(path, limit)
    found = of_fleet(fleet, fleet.select(limit, ()), given)
    waves.agreed(item.plan for item in found)
    return found


def seen(path: Path, limit: Sequence[str]) -> Fleet:
    """The fleet of an inventory, of whose boxes facts were kept. Raises ConfigError, also for one without."""
    fleet = from_file(path)
    unseen = fleet.unseen(fleet.concerned(limit, ()))
    if unseen:
        damaged = [f"{name}: {said}" for name in unseen if (said := known.ignored(fleet.facts_folder, name))]
        command = f"gpufleet discover {shlex.quote(str(paths.as_given(fleet.inventory)))}"
        raise ConfigError([*damaged, f"{', '.join(unseen)}: nothing is known yet: run `{command}`"])
    return fleet


def of_fleet(fleet: Fleet, names: Iterable[str], given: Mapping[str, Any]) -> list[Planned]:
    """The plans of these boxes, of which facts are known. Raises ConfigError."""
    return [
        checked_plan(
            plan_box(
                fleet.boxes[name], fleet.facts[name], fleet.layers, fleet.stacks, fleet.models, given, given_by=OPTION
            )
        )
        for name in names
    ]


def draw(found: Sequence[Planned], path: Path) -> None:
    """Write the picture of one box; of several, one file each, with the box's name in it. Raises ConfigError."""
    if path.is_dir():
        raise ConfigError([f"--svg {path} is a folder: give a file in it"])
    for item in found:
        plan = item.plan
        place = path if len(found) == 1 else path.with_name(f"{path.stem}-{plan.name}{path.suffix}")
        text = picture.svg(plan.name, plan.facts.get("gpus") or [], plan.facts.get("links") or {}, plan.instances)
        try:
            place.write_text(text, encoding="utf-8")
        except OSError as error:
            mend = SVG_MENDS.get(error.errno or 0, "give another file")
            raise ConfigError([f"--svg {place} cannot be written: {error.strerror}; {mend}"]) from None
