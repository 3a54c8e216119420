"""Rules about units of the owner's whose place an instance takes (`replaces` of a serve entry)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufleet import replacing
from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Said, rule

TRIGGERS = (".socket", ".timer", ".path")


@rule(
    "GF615",
    "replaced-unit-runs",
    level="warning",
    source="two servers of one model want the same cards and the same port",
    remedy="`systemctl disable --now UNIT` on the box. To have it back: `gpufleet remove`.",
)
def replaced_unit_runs(plan: BoxPlan) -> Said:
    """A unit whose place an instance has runs, or starts at the next boot. It was started or enabled again by somebody,
    or came into `replaces` when the instance served already. It is stopped by the next activation of the instance, not
    before."""
    for instance in plan.instances:
        has = (plan.facts.get("instances") or {}).get(instance.name) or {}
        units = [*instance.replaces, *replacing.taken_by(plan.facts, instance.name)] if has.get("current") else []
        for unit in dict.fromkeys(units):
            found = replacing.unit_facts(plan, unit) or {}
            doing = [
                words
                for words, does in (("runs", replacing.runs(found)), ("starts at boot", replacing.starts(found)))
                if does
            ]
            if doing:
                yield (
                    f"{unit} {' and '.join(doing)}, and {instance.name} has its place",
                    f"on the box `systemctl disable --now {unit}`",
                )


@rule(
    "GF616",
    "replaces-unknown",
    level="warning",
    source="units of users' own managers have names like those of the system's",
    remedy="The name as `systemctl list-units --type=service` has it; a user's own unit is stopped by that user.",
)
def replaces_unknown(plan: BoxPlan) -> Said:
    """`replaces` of an instance that is not on the box yet names a unit that is not there. An error when a user's own
    manager runs one of that name: nobody else can stop that. One of systemd-run is an error, too: it cannot come
    back."""
    for instance in plan.instances:
        if ((plan.facts.get("instances") or {}).get(instance.name) or {}).get("current"):
            continue
        for unit in instance.replaces:
            found = replacing.unit_facts(plan, unit)
            if found is not None and found.get("state") == "transient":
                yield (
                    f"{instance.name} is to take the place of {unit}, which systemd-run made: stopped it is gone, and "
                    "nothing could start it again",
                    f"take it out of `replaces`; before the deploy `systemctl stop {unit}` on the box",
                    "error",
                )
            if found is None or found.get("there"):
                continue
            if unit in _units_of_processes(plan):
                yield (
                    f"{instance.name} is to take the place of {unit}, which is a unit of a user's own systemd",
                    f"as that user `systemctl --user disable --now {unit}`, and take it out of `replaces`",
                    "error",
                )
            else:
                yield (
                    f"{instance.name} is to take the place of {unit}, and there is no such unit",
                    "take it out of `replaces`, or write it as `systemctl list-units --type=service` does",
                )


def _units_of_processes(plan: BoxPlan) -> set[Any]:
    """Units that somebody who listens or who has memory of a card belongs to."""
    listeners = (plan.facts.get("ports") or {}).values()
    processes = (item for gpu in plan.facts.get("gpus") or [] for item in gpu.get("processes") or [])
    return {item.get("unit") for item in [*listeners, *processes]}


@rule(
    "GF617",
    "replaced-unit-wanted",
    level="warning",
    source="systemd.unit(5): Wants, Requires, Triggers; `systemctl disable` changes none of them",
    remedy="Disable its socket or timer; of another unit or a target, what says there that it is wanted.",
)
def replaced_unit_wanted(plan: BoxPlan) -> Said:
    """A unit whose place an instance takes is started by something else than its being enabled: a socket, a timer,
    another unit that wants it. It is disabled by the activation, and comes back all the same. Scripts of init.d are
    disabled as units are."""
    for instance in plan.instances:
        for unit in instance.replaces:
            found = replacing.unit_facts(plan, unit) or {}
            enabled = replacing.starts(found)
            starters = [name for name in found.get("wanted_by") or [] if not enabled or name.endswith(TRIGGERS)]
            if starters:
                yield (
                    f"{unit}, whose place {instance.name} takes, is started by {', '.join(starters)}, too",
                    _taken_away(unit, found, starters[0]),
                )


def _taken_away(unit: str, found: Mapping[str, Any], starter: str) -> str:
    """What ends it that one unit starts another. A target or a service has others to start, and goes on doing that."""
    if starter.endswith(TRIGGERS):
        return f"on the box `systemctl disable --now {starter}`"
    if found.get("state") == "generated":
        return f"on the box take that out of what it is made of: `SourcePath` of `systemctl show {unit}`"
    return f"on the box take away what makes {starter} want it: a link in {starter}.wants, a line of that unit"
