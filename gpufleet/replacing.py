"""Units of the owner's whose place an instance takes: what facts tell of them, and what of theirs is free. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpufleet.crossing import RUNNING
from gpufleet.plan import BoxPlan, Instance

# How programs are called that serve models: engines, and the Python that most of them are.
SERVERS = re.compile(r"python|vllm|lmdeploy|llama|sglang|ollama|text-generation|tritonserver", re.IGNORECASE)
# Units that run what people start in them: to stop one stops far more than a server, and may shut its owner out. Where
# logins have no session of their own (no pam_systemd), what was started by hand is in ssh.service.
SHARED = re.compile(
    r"(sshd?|sshd?@.+|dropbear|(ana)?cron(d|ie)?|fcron|atd|rc-local|supervisord?|(serial-|container-)?getty@.+|"
    r"console-getty|user@.+|screen|tmux|jupyter.*|code-server.*|ttyd|xrdp.*|gdm3?|lightdm|sddm|docker|containerd|"
    r"podman|slurmd|dbus.*|systemd-.+)\.service"
)
# Where packages have their units, and systemd those that it makes itself; an owner's own are elsewhere.
OF_PACKAGES = ("/usr/lib/systemd/", "/lib/systemd/", "/run/systemd/")


def unit_facts(plan: BoxPlan, unit: str) -> Mapping[str, Any] | None:
    """What the look told of a unit; None when it did not tell, as in facts that were kept."""
    found: Mapping[str, Any] | None = (plan.facts.get("units") or {}).get(unit)
    return found


def runs(found: Mapping[str, Any]) -> bool:
    return found.get("active") in RUNNING


def starts(found: Mapping[str, Any]) -> bool:
    """Whether it is enabled, and so started at boot."""
    return str(found.get("state") or "").startswith("enabled")


def is_shared(unit: str, path: str | None = None) -> bool:
    """Whether a unit is none of the owner's that starts a server, but one that a server was started in.

    + path: of its file, where that is known
    """
    return bool(SHARED.fullmatch(unit)) or (path or "").startswith(OF_PACKAGES)


def stopped_for(plan: BoxPlan, instance: Instance) -> set[str]:
    """Names by which processes of units are known that are stopped before an instance starts: what they have is free.

    A unit that the system's manager does not run is none: a user's own manager may have one of the same name.
    """
    names = set()
    for unit in instance.replaces:
        found = unit_facts(plan, unit)
        if found is None:
            names.add(unit)
        elif runs(found):
            names.add(str(found.get("id") or unit))
    return names


def offer(instance: Instance, unit: str, program: str) -> str:
    """What may be done, as a further choice of a remedy, about a unit that has what an instance wants.

    + program: what of it listens or has the memory; only what may serve models is offered to be replaced
    """
    if not unit.endswith(".service") or unit in instance.replaces or is_shared(unit) or not SERVERS.match(program):
        return ""
    return f', or let {instance.name} take its place ("replaces": ["{unit}"] in its serve entry)'


def to_stop(plan: BoxPlan, instance: Instance) -> list[str]:
    """The units of `replaces` that run or are started at boot now, or of which nothing is known."""
    known = ((unit, unit_facts(plan, unit)) for unit in instance.replaces)
    return [unit for unit, found in known if found is None or runs(found) or starts(found)]


def taken_by(facts: Mapping[str, Any], name: str) -> list[str]:
    """The units whose place an instance took on the box, by the box's own books."""
    return sorted(((facts.get("instances") or {}).get(name) or {}).get("replaced") or {})


def way_back(units: Iterable[str]) -> str:
    """The command that brings units back."""
    return f"systemctl enable --now {' '.join(units)}"
