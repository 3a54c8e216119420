"""What has to change on a box: the plan beside the facts. Nothing here means nothing to do. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpufleet import host
from gpufleet.models import Model
from gpufleet.plan import BoxPlan, Instance
from gpufleet.render import Release, release
from gpufleet.runtime import Runtime
from gpufleet.toolkit import keeps_off

# Ours of apt's files, see hostkit/blacklist.py.
UPGRADES = "/etc/apt/apt.conf.d/51gpufleet"


@dataclass(frozen=True)
class InstanceChange:
    """An instance to be staged or switched, and why."""

    instance: Instance
    release: Release
    stage: bool
    reasons: list[str]


@dataclass(frozen=True)
class Changes:
    """All that a deploy would do on a box.

    + packages: to be installed
    + apt: what else apt has to be told, a line each
    + host: settings of the box itself that differ, a line each
    """

    packages: list[str] = field(default_factory=list)
    apt: list[str] = field(default_factory=list)
    host: list[str] = field(default_factory=list)
    runtimes: list[Runtime] = field(default_factory=list)
    models: list[Model] = field(default_factory=list)
    instances: list[InstanceChange] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        parts = (self.packages, self.apt, self.host, self.runtimes, self.models, self.instances, self.leaving)
        return any(parts)

    def lines(self) -> list[str]:
        """One line for each thing that would be done."""
        lines = [f"apt install {' '.join(self.packages)}"] if self.packages else []
        lines += self.apt + self.host
        lines += [f"install runtime {runtime.name}" for runtime in self.runtimes]
        lines += [f"put model {model.name} {model.revision} in place" for model in self.models]
        lines += [
            f"activate {change.instance.name} {change.release.digest}: {', '.join(change.reasons)}"
            for change in self.instances
        ]
        lines += [f"retire {name}: it is in no serve entry" for name in self.leaving]
        return lines


def changes(plan: BoxPlan) -> Changes:
    """Compare a plan with what its box was found to be."""
    facts = plan.facts
    runtimes, models = facts.get("runtimes") or {}, facts.get("models") or {}
    renewed = [runtime for runtime in plan.runtimes if not runtimes.get(runtime.name, {}).get("complete")]
    moved = [model for model in plan.models if not _in_place(model, models)]
    found = [_instance(plan, instance, renewed, moved) for instance in plan.instances]
    return Changes(
        packages=_packages(plan),
        apt=_apt(plan),
        host=host.lines(plan),
        runtimes=renewed,
        models=moved,
        instances=[change for change in found if change.reasons],
        leaving=_leaving(plan),
    )


def _in_place(model: Model, found: Mapping[str, Any]) -> bool:
    """Whether a model is whole on the box, and where the catalogue says when it lies with the owner."""
    there = found.get(f"{model.name}/{model.revision}", {})
    return bool(there.get("complete")) and there.get("link") == model.source.path


def _leaving(plan: BoxPlan) -> list[str]:
    """Instances of ours that the plan does not have, and that would serve on or come back at the next boot."""
    planned = {instance.name for instance in plan.instances}
    return [
        name
        for name, found in (plan.facts.get("instances") or {}).items()
        if name not in planned and found.get("current")
    ]


def _packages(plan: BoxPlan) -> list[str]:
    if not plan.settings.host.install_packages:
        return []
    return [name for name in plan.packages if not plan.facts["packages"].get(name)]


def _apt(plan: BoxPlan) -> list[str]:
    """Holds and the list of unattended-upgrades: nothing where the box did not tell of them."""
    found, wanted = plan.facts.get("apt"), plan.settings.host
    if not found or not wanted.install_packages:
        return []
    lines = []
    on_hold = {*found["held"], *(plan.facts.get("holds") or [])}
    free = [name for name in found["installed"] if name not in on_hold]
    if wanted.hold_packages and free:
        lines.append(f"hold {_some(free)}")
    elif not wanted.hold_packages and found["held"]:
        lines.append(f"release the hold of {_some(found['held'])}")
    keep = keeps_off(plan)
    if keep and found["upgrades"] != "current":
        lines.append(f"keep unattended-upgrades off driver and toolkit: {UPGRADES} is {found['upgrades']}")
    elif keep is False and found["upgrades"] != "missing":
        lines.append(f"remove {UPGRADES}")
    return lines


def _some(names: Sequence[str]) -> str:
    """The first of many names: a toolkit has some forty packages."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _instance(plan: BoxPlan, instance: Instance, renewed: list[Runtime], moved: list[Model]) -> InstanceChange:
    wanted = release(instance)
    found = (plan.facts.get("instances") or {}).get(instance.name)
    if found is None:
        return InstanceChange(instance, wanted, True, ["new"])
    reasons = []
    drift = list(found.get("drift") or [])
    # An absolute path is the installed unit, which the activation puts right; the others are files of the release.
    edited = any(not path.startswith("/") for path in drift)
    staged = wanted.digest in (found.get("releases") or [])
    if found.get("current") is None and found.get("gated") == wanted.digest:
        reasons.append("its current link is gone")
    elif found.get("current") != wanted.digest:
        reasons.append(f"its configuration changed (was {found.get('current') or 'none'})")
    reasons += drift
    service = found.get("service") or {}
    if service.get("active") != "active":
        reasons.append(f"its service is {service.get('active') or 'not there'}")
    if service.get("enabled") is False:
        reasons.append("its service is not enabled")
    # A process that was started on what is replaced now would go on with what it has read of it.
    reasons += ["its runtime is installed anew"] if instance.runtime in renewed else []
    reasons += ["its model is put in place anew"] if instance.model in moved else []
    if not reasons and (found.get("gated") != wanted.digest or found.get("stale")):
        reasons.append("an earlier activation did not end")
    return InstanceChange(instance, wanted, not staged or edited, reasons)
