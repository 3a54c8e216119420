"""Which runtimes and models a call of `gpufleet fetch` means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufleet import catalogue, layers, model_files, paths, planning
from gpufleet.errors import ConfigError, nearest
from gpufleet.inventory import incomplete
from gpufleet.models import Model
from gpufleet.runtime import Runtime
from gpufleet.settings import Mirrors, Settings
from gpufleet.stacks import Stack


@dataclass(frozen=True)
class Target:
    """A runtime, and where what it is made of comes from."""

    runtime: Runtime
    mirrors: Mirrors


@dataclass(frozen=True)
class ModelTarget:
    """A model, and where its files come from."""

    model: Model
    mirrors: Mirrors


def of_inventory(path: Path, given: Mapping[str, Any], limit: Sequence[str]) -> tuple[list[Target], list[ModelTarget]]:
    """What the boxes of an inventory need by the facts that were kept. Raises ConfigError."""
    plans = [item.plan for item in planning.of_inventory(path, given, limit)]
    runtimes = _once(Target(runtime, plan.settings.mirrors) for plan in plans for runtime in plan.runtimes)
    models = {model.name: ModelTarget(model, plan.settings.mirrors) for plan in plans for model in plan.models}
    return runtimes, list(models.values())


def settings(given: Mapping[str, Any]) -> Settings:
    """What group_data says for all boxes of the fleet's folder one is in, and `given` over it. Raises ConfigError."""
    return layers.merge([*layers.of_all(Path.cwd()), layers.Layer(planning.OPTION, given)]).settings


def of_models(names: Sequence[str], given: Mapping[str, Any]) -> list[ModelTarget]:
    """Models by name. Raises ConfigError, also for one that is on its boxes already."""
    models = catalogue.load(Model, "model", paths.model_folders(Path.cwd()))
    mirrors = settings(given).mirrors
    chosen = [models.find(name, "--model") for name in dict.fromkeys(names)]
    if problems := [
        f"--model {model.name}: it is on its boxes, in {model.source.path}, and comes from nowhere"
        for model in chosen
        if not model_files.items(model, mirrors)
    ]:
        raise ConfigError(problems)
    return [ModelTarget(model, mirrors) for model in chosen]


def of_stacks(
    names: Sequence[str], archs: Sequence[str], pythons: Sequence[str], given: Mapping[str, Any]
) -> list[Target]:
    """What named stacks, or those made for cards, need. Raises ConfigError.

    + archs: `sm75`; with names, what their stacks must be for
    + pythons: minor versions of the boxes; none: all that a stack has a lock for
    """
    stacks = catalogue.load(Stack, "stack", paths.stack_folders(Path.cwd()))
    if problems := incomplete(stacks):
        raise ConfigError(problems)
    wanted = settings(given)
    chosen = [stacks.find(name, "--stack") for name in names]
    known = {arch for stack in stacks.values() for arch in stack.arch}
    problems = [f"--arch: no stack is for {arch!r}{nearest(arch, known)}" for arch in archs if arch not in known]
    if problems:
        raise ConfigError(problems)
    for arch in archs:
        if names:
            others = [stack for stack in chosen if arch not in stack.arch]
            problems += [f"--arch {arch}: {stack.name} is for {', '.join(stack.arch)}" for stack in others]
        elif made_for := [stack for stack in stacks.values() if arch in stack.default_for]:
            chosen += made_for
        else:
            problems.append(f"--arch {arch}: no stack is the default for it; name one with --stack")
    for stack in chosen:
        problems += [
            f"--python {python}: {stack.name} has locks for {', '.join(stack.python)}"
            for python in pythons
            if python not in stack.python
        ]
    if problems:
        raise ConfigError(problems)
    chosen = [stack.with_options(wanted.options, "--set options") for stack in chosen]
    runtimes = [Runtime(stack, python) for stack in chosen for python in (pythons or stack.python)]
    return _once(Target(runtime, wanted.mirrors) for runtime in runtimes)


def _once(targets: Iterable[Target]) -> list[Target]:
    """Each stack and Python once: boxes with other cards need the same files. Raises ConfigError without a lock."""
    found = {(item.runtime.stack.name, item.runtime.python): item for item in targets}
    unlocked = dict.fromkeys(name for (name, _), item in found.items() if not item.runtime.stack.installable)
    if unlocked:
        raise ConfigError(
            f"{name} has no lock, so nothing of it can be fetched: set another stack" for name in unlocked
        )
    return list(found.values())
