"""Why a value is what it is: who gave it, and what that overrode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpufleet.errors import ConfigError, nearest
from gpufleet.instance import Instance
from gpufleet.plan import BoxPlan
from gpufleet.provenance import Given, Values


def explain(plans: Sequence[BoxPlan], key: str) -> list[str]:
    """Lines that say for each box and instance the value of `key`, its source, and what it overrode.

    + key: a flag (`max-num-seqs`, `max_num_seqs`, `compilation-config.cudagraph_capture_sizes`), a variable, or a
      choice of the plan (`stack`, `gpus`, `streams`, `cuda_toolkit`)
    Raises ConfigError when no instance has such a key.
    """
    lines = [line for plan in plans for item in plan.instances for line in _instance(plan, item, key)]
    if not lines and key:
        lines = [line for plan in plans for item in plan.instances for line in _unset(plan, item, key)]
    if not lines:
        known = {name for plan in plans for item in plan.instances for name in _names(item)}
        if not known:
            raise ConfigError([f"--explain {key}: nothing is served there: name models with `serve`, or --model"])
        raise ConfigError([f"--explain {key}: no instance has it{nearest(_plain(key), known)}"])
    return lines


def _names(item: Instance) -> set[str]:
    return {*item.flags.trace, *item.variables.trace, *item.choices.trace}


def _plain(key: str) -> str:
    """The engine's spelling of a flag; what follows a dot is a name inside its mapping and stays."""
    flag, dot, rest = key.lstrip("-").partition(".")
    return flag.replace("_", "-") + dot + rest


def _instance(plan: BoxPlan, item: Instance, key: str) -> list[str]:
    lines = []
    places: list[tuple[Values, str]] = [
        (item.choices, key.lstrip("-").replace("-", "_")),
        (item.flags, _plain(key)),
        (item.variables, key.removeprefix("env.")),
    ]
    for values, name in places:
        for found, history in values.below(name):
            lines += _history(f"{plan.name} {item.name}: {found}", item, history, values.in_force(found))
        if lines:
            break
    return lines


def _unset(plan: BoxPlan, item: Instance, key: str) -> list[str]:
    """Of a flag that the engine has and nobody gave."""
    table, name = item.stack.table, _plain(key)
    if table is None or not table.knows_flag(name):
        return []
    return [f"{plan.name} {item.name}: {name} is not set: the engine's own default counts"]


def _history(head: str, item: Instance, history: Sequence[Given], in_force: bool) -> list[str]:
    *before, last = history
    lines = [f"{head} = {_shown(last.value)}" if in_force else f"{head} is not set"]
    taken = "" if in_force or last.value is None else ", and taken away by what came after"
    lines.append(f"    by {_place(last.source, item)}{taken}")
    lines += [f"    over {_shown(given.value)} by {_place(given.source, item)}" for given in reversed(before)]
    return lines


def _shown(value: object) -> str:
    return "nothing (null leaves the flag out)" if value is None else str(value)


def _place(source: str, item: Instance) -> str:
    """The source, with the file of a stack or a model."""
    for kind, entry in (("stack", item.stack), ("model", item.model)):
        if source.startswith(f"{kind} {entry.name}") and entry.path != Path():
            return f"{source} (files/{entry.path.parent.name}/{entry.path.name})"
    return source
