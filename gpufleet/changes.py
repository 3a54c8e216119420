"""What has to change on a box: the plan beside the facts. Nothing here means nothing to do. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpufleet import crossing, host, replacing, room
from gpufleet import reasons as why
from gpufleet.models import Model
from gpufleet.need import gpus
from gpufleet.plan import BoxPlan, Instance
from gpufleet.reasons import Kind, Reason
from gpufleet.render import Release, release
from gpufleet.runtime import Runtime
from gpufleet.toolkit import keeps_off

# Ours of apt's files, see hostkit/blacklist.py.
UPGRADES = "/etc/apt/apt.conf.d/51gpufleet"


@dataclass(frozen=True)
class InstanceChange:
    """An instance to be staged or switched, and why.

    + down: how long it was down the last time, in words; empty when it does not serve now, or is not restarted
    + gpus: what its cards must have free, see gpufleet.need
    + replaces: units of the owner's that are stopped for it, and disabled when it serves
    """

    instance: Instance
    release: Release
    stage: bool
    reasons: list[Reason]
    down: str = ""
    gpus: list[dict[str, Any]] = field(default_factory=list)
    replaces: list[str] = field(default_factory=list)

    def line(self) -> str:
        reasons, units = ", ".join(each.text for each in self.reasons), ", ".join(self.replaces)
        taken = f"takes the place of {units}, stopped for it and disabled when it serves" if units else ""
        words = "; ".join(filter(None, [reasons, taken, self.down]))
        return f"activate {self.instance.name} {self.release.digest}: {words}"


@dataclass(frozen=True)
class Changes:
    """All that a deploy would do on a box.

    + packages: to be installed
    + apt: what else apt has to be told, a line each
    + leaving: names of instances in no serve entry; replaced: units of the owner's whose place they had
    + held: names of instances that are left as they are, and why; no changes
    + host: settings of the box itself that differ, a line each
    + models_home: the folder that /opt/gpufleet/models is to become a link to; empty when it is, or none is wanted
    """

    packages: list[str] = field(default_factory=list)
    apt: list[str] = field(default_factory=list)
    host: list[str] = field(default_factory=list)
    runtimes: list[Runtime] = field(default_factory=list)
    models_home: str = ""
    models: list[Model] = field(default_factory=list)
    instances: list[InstanceChange] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)
    replaced: dict[str, list[str]] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        parts = (self.packages, self.apt, self.host, self.runtimes, self.models, self.instances, self.leaving)
        return any(parts) or bool(self.models_home)

    def lines(self) -> list[str]:
        """One line for each thing that would be done."""
        lines = [f"apt install {' '.join(self.packages)}"] if self.packages else []
        lines += self.apt + self.host
        lines += [f"install runtime {runtime.name}" for runtime in self.runtimes]
        lines += self.of_models_home()
        lines += [f"put model {model.name} {model.directory} in place" for model in self.models]
        lines += [change.line() for change in self.instances]
        lines += [f"retire {name}: it is in no serve entry{self._off(name)}" for name in self.leaving]
        return lines

    def _off(self, name: str) -> str:
        units = self.replaced.get(name)
        if not units:
            return ""
        return f"; {', '.join(units)}, whose place it has, stays off (`{replacing.way_back(units)}` brings it back)"

    def of_models_home(self) -> list[str]:
        return [f"keep models in {self.models_home}: {room.MODELS} links to it"] if self.models_home else []

    def notes(self) -> list[str]:
        """One line for each instance that is left alone though a deploy would see to it."""
        return [f"{name} is left as it is: {since}" for name, since in self.held.items()]


def untouched(facts: Mapping[str, Any]) -> bool:
    """Whether nothing on a box is gpufleet's but the kit."""
    ours = [facts.get(key) for key in ("runtimes", "models", "instances")]
    ours += [(facts.get("user") or {}).get("exists"), (facts.get("apt") or {}).get("installed")]
    ours.append((facts.get("models_home") or {}).get("ours"))
    return not any(ours) and (facts.get("host") or {}).get("unit") in (None, "missing")


def changes(plan: BoxPlan) -> Changes:
    """Compare a plan with what its box was found to be."""
    facts = plan.facts
    runtimes, models = facts.get("runtimes") or {}, facts.get("models") or {}
    held = _held(plan)
    ours = [instance for instance in plan.instances if instance.name not in held]
    used = [runtime for runtime in plan.runtimes if any(instance.runtime == runtime for instance in ours)]
    served = [model for model in plan.models if any(instance.model == model for instance in ours)]
    renewed = [runtime for runtime in used if not runtimes.get(runtime.name, {}).get("complete")]
    moved = [model for model in served if not _in_place(model, models)]
    found = {instance.name: _instance(plan, instance, renewed, moved) for instance in ours}
    order = crossing.in_order(list(found), crossing.taken(plan))
    return Changes(
        packages=_packages(plan),
        apt=_apt(plan),
        host=host.lines(plan),
        runtimes=renewed,
        models_home=_models_home(plan),
        models=moved,
        instances=[found[name] for name in order if found[name].reasons],
        leaving=[name for name in _leaving(plan) if name not in held],
        replaced={name: _off(plan, name) for name in _leaving(plan)},
        held=held,
    )


def _models_home(plan: BoxPlan) -> str:
    """`host.models` where it is not so yet; nothing where the look did not tell."""
    wanted, found = plan.settings.host.models, plan.facts.get("models_home")
    return wanted if wanted and found and not (found["link"] == wanted and found["ours"]) else ""


def _held(plan: BoxPlan) -> dict[str, str]:
    """Instances that somebody rolled back or held, and what is to be said of them."""
    return {
        name: f"held since {held['since']} on release {held['digest']}"
        + (f" by {held['by']}" if held.get("by") else "")
        + f", until `gpufleet unhold INVENTORY {plan.name}/{name}`"
        for name, found in (plan.facts.get("instances") or {}).items()
        if crossing.known_held(plan.facts["instances"], name) and (held := found["held"])
    }


def _in_place(model: Model, found: Mapping[str, Any]) -> bool:
    """Whether a model is whole on the box, and where the catalogue says when it lies with the owner."""
    there = found.get(f"{model.name}/{model.directory}", {})
    return bool(there.get("complete")) and there.get("link") == model.link


def _leaving(plan: BoxPlan) -> list[str]:
    """Instances of ours that the plan does not have, and that would serve on or come back at the next boot."""
    planned = {instance.name for instance in plan.instances}
    return [
        name
        for name, found in (plan.facts.get("instances") or {}).items()
        if name not in planned and found.get("current")
    ]


def _off(plan: BoxPlan, name: str) -> list[str]:
    """Units of the owner's that stay off when an instance leaves, and that none which stays has the place of, too."""
    stays = {unit for each in plan.instances for unit in (*each.replaces, *replacing.taken_by(plan.facts, each.name))}
    return [unit for unit in replacing.taken_by(plan.facts, name) if unit not in stays]


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
    needed, units = gpus(instance), replacing.to_stop(plan, instance)
    if found is None:
        return InstanceChange(instance, wanted, True, [why.NEW], gpus=needed, replaces=units)
    reasons = why.found(found, wanted.digest, instance.runtime in renewed, instance.model in moved)
    # The installed unit is put right by the activation; the rest of the drift are files of the release.
    edited = any(reason.kind in (Kind.FILE, Kind.LINK) for reason in reasons)
    staged = wanted.digest in (found.get("releases") or [])
    goes_down = (found.get("service") or {}).get("active") == "active" and any(each.kind.restarts for each in reasons)
    down = _down(found) if goes_down else ""
    return InstanceChange(instance, wanted, not staged or edited, reasons, down, needed, units)


def _down(found: Mapping[str, Any]) -> str:
    """How long it was down at its last restart: from the stop to the first completion."""
    figures = [line["down_seconds"] for line in found.get("history") or [] if line.get("down_seconds") is not None]
    return f"last time {figures[-1]:.0f} s down" if figures else "it goes down for that, no figure yet for how long"
