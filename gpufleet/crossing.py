"""Instances of one box that take each other's cards or ports: who is switched first, and who cannot be. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpufleet.plan import BoxPlan, Instance

# In these states a service has cards and a port, or will have them at once.
RUNNING = ("active", "activating", "reloading", "deactivating")
# By the name of an instance: of which others it will have something that they have now, and what: `GPU 0`.
Taken = dict[str, dict[str, list[str]]]


def taken(plan: BoxPlan) -> Taken:
    """What each instance will have that another one which stays on the box has now. One that leaves is stopped
    first."""
    known = plan.facts.get("instances") or {}
    wanted = {instance.name: _wanted(instance) for instance in plan.instances if not known_held(known, instance.name)}
    found: Taken = {}
    for name, mine in wanted.items():
        for other, facts in known.items():
            stays = other in wanted or known_held(known, other)
            if other == name or not stays or (facts.get("service") or {}).get("active") not in RUNNING:
                continue
            # What both are to have, and not only one after the other, is no crossing: other rules are for that.
            crossing = (mine & _has(plan, other, facts)) - wanted.get(other, set())
            if crossing:
                found.setdefault(name, {})[other] = sorted(_words(plan, each) for each in crossing)
    return found


def known_held(known: Mapping[str, Any], name: str) -> bool:
    """Whether a deploy leaves it as it is: rolled back, or held."""
    found = known.get(name) or {}
    return bool(found.get("held") and found.get("current"))


def in_order(names: Sequence[str], crossing: Taken) -> list[str]:
    """Each after those whose cards and ports it takes, else as given; of a circle all at the end, as given."""
    left, done = list(names), []
    while ready := [name for name in left if not {*crossing.get(name, ())} & {*left}]:
        done.append(ready[0])
        left.remove(ready[0])
    return done + left


def circles(names: Iterable[str], crossing: Taken) -> list[list[str]]:
    """Instances of which each takes something of the next, and the last of the first: none can be switched first."""
    found: list[list[str]] = []
    for start in names:
        way = [start]
        while (following := next(iter(crossing.get(way[-1], ())), None)) and following not in way:
            way.append(following)
        circle = way[way.index(following) :] if following else []
        if circle and not any({*circle} & {*other} for other in found):
            found.append(circle)
    return found


def _wanted(instance: Instance) -> set[str]:
    return {*instance.uuids, str(instance.port)}


def _has(plan: BoxPlan, name: str, facts: Mapping[str, Any]) -> set[str]:
    """UUIDs of cards by its release, ports by who listens."""
    unit = f"gpufleet-{name}.service"
    ports = plan.facts.get("ports") or {}
    return {*(facts.get("gpus") or ()), *(port for port, who in ports.items() if who.get("unit") == unit)}


def _words(plan: BoxPlan, what: str) -> str:
    index = {gpu["uuid"]: gpu["index"] for gpu in plan.facts.get("gpus") or []}
    return f"port {what}" if what.isdigit() else f"GPU {index.get(what, what)}"
