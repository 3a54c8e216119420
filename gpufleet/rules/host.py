"""Rules about the box itself: system, Python, space, packages, ports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Said, rule

SYSTEMS = {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04")}
# What apt, uv's environment and the releases take beside the stack's own figure.
SPARE_MIB = 1024


@rule("system-unsupported", "error")
def system_unsupported(plan: BoxPlan) -> Said:
    """Only the systems that were tried: another one's apt names and Python would fail half way."""
    found = plan.facts["os"]
    if found["version_id"] not in SYSTEMS.get(found["id"], ()):
        names = ", ".join(f"{name} {'/'.join(versions)}" for name, versions in SYSTEMS.items())
        yield f"the box runs {found['id']} {found['version_id']}", f"install one of: {names}"
    if found["arch"] != "x86_64":
        yield f"the box is {found['arch']}", "the stacks are made of x86_64 wheels: use an x86_64 box"


@rule("python-unsupported", "error")
def python_unsupported(plan: BoxPlan) -> Said:
    """A stack's lock is made for certain Python versions; another one would resolve to other wheels."""
    version = ".".join(plan.facts["python"]["version"].split(".")[:2])
    for stack in plan.stacks:
        if version not in stack.python:
            yield (
                f"{stack.name} is locked for Python {'/'.join(stack.python)}, the box has {version}",
                f"use a system whose python3 is {stack.python[0]}, or a stack made for {version}",
            )


@rule("packages-missing", "error")
def packages_missing(plan: BoxPlan) -> Said:
    """Where the owner keeps apt to himself, everything must be there: a stack without g++ serves 500s."""
    if not plan.settings.host.install_packages:
        missing = [name for name in plan.packages if not plan.facts["packages"].get(name)]
        if missing:
            yield (
                f"not installed: {', '.join(missing)}",
                f"apt-get install {' '.join(missing)}, or host.install_packages",
            )


@rule("disk-space", "error")
def disk_space(plan: BoxPlan) -> Said:
    """A disk that fills up in the middle costs the whole download."""
    have = plan.facts["disks"]["/opt/gpufleet"]["free_mib"]
    runtimes, models = plan.facts.get("runtimes") or {}, plan.facts.get("models") or {}
    need = sum(stack.disk_mib for stack in plan.stacks if not runtimes.get(stack.runtime, {}).get("complete"))
    need += sum(
        model.size_mib for model in plan.models if not models.get(f"{model.name}/{model.revision}", {}).get("complete")
    )
    if need and have < need + SPARE_MIB:
        yield f"/opt/gpufleet has {have} MiB free, {need + SPARE_MIB} MiB are needed", "free space or use a larger disk"


@rule("port-taken", "error")
def port_taken(plan: BoxPlan) -> Said:
    """Something else listens where an instance is to listen; or two instances want one port."""
    wanted: dict[int, str] = {}
    for instance in plan.instances:
        if instance.port in wanted:
            yield (
                f"{wanted[instance.port]} and {instance.name} both want port {instance.port}",
                "give one of them another `port`",
            )
        wanted[instance.port] = instance.name
        holder = plan.facts["ports"].get(str(instance.port))
        if holder and not _is_ours(holder, instance.name, plan):
            who = holder.get("unit") or holder.get("command") or "another program"
            pid = f" (pid {holder['pid']})" if holder.get("pid") else ""
            yield (
                f"port {instance.port} is taken by {who}{pid}",
                f"stop it, or set another `port` for {instance.name} (in two deploys, when two change places)",
            )


def _is_ours(holder: Mapping[str, Any], name: str, plan: BoxPlan) -> bool:
    """Whether the instance itself holds the port, or one that leaves and so gives it up."""
    unit = str(holder.get("unit") or "")
    others = {f"gpufleet-{instance.name}.service" for instance in plan.instances if instance.name != name}
    return unit.startswith("gpufleet-") and unit not in others


@rule("probe-incomplete", "warning")
def probe_incomplete(plan: BoxPlan) -> Said:
    """A source of facts that failed: what depends on it is decided without it."""
    for error in plan.facts.get("errors") or []:
        yield f"could not read {error['source']}: {error['message']}", "look at it on the box; then deploy again"
