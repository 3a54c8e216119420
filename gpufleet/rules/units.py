"""Rules about units of systemd: what somebody put beside one of ours, or in its place; those that change places."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet import crossing
from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Said, rule

EDITED = ("/etc/systemd/system", "/run/systemd/system")  # where `systemctl revert` takes drop-ins away
# Folders of units that systemd looks in before /etc/systemd/system, where ours are.
BEFORE_OURS = (
    "/etc/systemd/system.control/",
    "/run/systemd/system.control/",
    "/run/systemd/transient/",
    "/run/systemd/generator.early/",
)


@rule(
    "GF611",
    "unit-drop-in",
    level="warning",
    source="`systemctl edit`, `systemctl set-property`",
    remedy="`systemctl revert UNIT` on the box, then `gpufleet restart`; or keep it, and silence this.",
)
def unit_drop_in(plan: BoxPlan) -> Said:
    """A file on the box changes a unit beside its release, so the instance need not run as it was planned and gated. It
    is its owner's: no deploy removes it, and none restarts the instance for it. It applies from the next start on."""
    for name, unit, service in _services(plan):
        for path in service.get("drop_ins") or []:
            edited = path.startswith(tuple(f"{folder}/{unit}.d/" for folder in EDITED))
            away = f"systemctl revert {unit}" if edited else _removed(path)
            yield (
                f"{path} changes the unit of {name}, and is no part of its release",
                f"keep it and silence this, or on the box `{away}`, then `gpufleet restart`",
            )


@rule(
    "GF612",
    "unit-replaced",
    level="error",
    source="systemd.unit(5): system.control, transient and generator.early come before /etc/systemd/system",
    remedy="Remove that file on the box, `systemctl daemon-reload`. To have an instance stopped: out of `serve`.",
)
def unit_replaced(plan: BoxPlan) -> Said:
    """systemd goes by another unit file than ours, or starts nothing at all (masked), by a file in a folder that comes
    before ours: whatever a deploy installs, it is not what is started. A file or a mask in the place of ours is
    replaced by the deploy."""
    for name, _, service in _services(plan):
        path = service.get("fragment") or ""
        if path.startswith(BEFORE_OURS):
            how = "masks" if service.get("masked") else "is in force in place of"
            yield f"{path} {how} the unit of {name}", f"on the box `{_removed(path)}`"


@rule(
    "GF613",
    "unit-unread",
    level="warning",
    source="`systemctl daemon-reload` was forgotten after an edit",
    remedy="`systemctl daemon-reload` on the box; each activation does it, too.",
)
def unit_unread(plan: BoxPlan) -> Said:
    """A file of the unit was changed since systemd read it: until it is read again, a start goes by what was there
    before."""
    for name, unit, service in _services(plan):
        if service.get("unread"):
            yield (
                f"systemd goes by what {unit} was before a file of it changed ({name})",
                "on the box `systemctl daemon-reload`",
            )


@rule(
    "GF614",
    "instances-cross",
    level="error",
    source="an instance is switched alone, and put back alone when its gate fails",
    remedy="Stop one of them on the box, then deploy: the other is switched first. Of a held one: `gpufleet unhold`.",
)
def instances_cross(plan: BoxPlan) -> Said:
    """Instances of one box take each other's cards or ports in a circle, or those of one that is held: none can be
    switched while the others serve as they do. (Where there is no circle the deploy finds the order by itself.)"""
    taken, known = crossing.taken(plan), plan.facts.get("instances") or {}
    for name, others in taken.items():
        for other in others:
            if crossing.known_held(known, other):
                yield (
                    f"{name} is to have {', '.join(others[other])}, which {other} has, and {other} is held",
                    f"`gpufleet unhold INVENTORY {plan.name}/{other}`, or give {name} something else",
                )
    for circle in crossing.circles(taken, taken):
        steps = zip(circle, [*circle[1:], circle[0]], strict=True)
        who = ", and ".join(f"{name} is to have {', '.join(taken[name][other])} of {other}" for name, other in steps)
        yield (
            f"{who}: none of them can be switched first",
            f"on the box `systemctl stop gpufleet-{circle[1]}.service`, then deploy again: {circle[0]} is switched "
            f"first then, and {circle[1]} is down until its own turn",
        )


def _removed(path: str) -> str:
    return f"rm {shlex.quote(path)} && systemctl daemon-reload"


def _services(plan: BoxPlan) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Name, unit and service of each planned instance that is on the box."""
    for instance in plan.instances:
        found = (plan.facts.get("instances") or {}).get(instance.name) or {}
        yield instance.name, f"gpufleet-{instance.name}.service", found.get("service") or {}
