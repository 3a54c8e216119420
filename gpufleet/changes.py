"""What has to change on a box: the plan beside the facts. Nothing here means nothing to do. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpufleet.models import Model
from gpufleet.plan import BoxPlan, Instance
from gpufleet.render import Release, release
from gpufleet.runtime import Runtime


@dataclass(frozen=True)
class InstanceChange:
    """An instance to be staged or switched, and why."""

    instance: Instance
    release: Release
    stage: bool
    reasons: list[str]


@dataclass(frozen=True)
class Changes:
    """All that a deploy would do on a box."""

    packages: list[str] = field(default_factory=list)
    runtimes: list[Runtime] = field(default_factory=list)
    models: list[Model] = field(default_factory=list)
    instances: list[InstanceChange] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.packages or self.runtimes or self.models or self.instances or self.leaving)

    def lines(self) -> list[str]:
        """One line for each thing that would be done."""
        lines = [f"apt install {' '.join(self.packages)}"] if self.packages else []
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
