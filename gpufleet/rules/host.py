"""Rules about the box itself: system, space, packages, ports, clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gpufleet import replacing
from gpufleet.host import refused
from gpufleet.plan import BoxPlan
from gpufleet.room import SPARE_MIB, free_mib, needs
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import failed, on_gpus
from gpufleet.toolkit import keeps_off

SYSTEMS = {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04")}


@rule(
    "GF601",
    "system-unsupported",
    level="error",
    source="boxes of Debian 12 were tried; Debian 13 and Ubuntu are accepted, and were not tried yet",
    remedy="Debian 12 or 13, Ubuntu 22.04 or 24.04, on x86_64.",
)
def system_unsupported(plan: BoxPlan) -> Said:
    """The box is not Debian 12 or 13, Ubuntu 22.04 or 24.04, or not x86_64. Names of packages and the Python would fail
    half way on others."""
    found = plan.facts.get("os") or {}
    if found.get("id") and found.get("version_id") not in SYSTEMS.get(found["id"], ()):
        names = ", ".join(f"{name} {'/'.join(versions)}" for name, versions in SYSTEMS.items())
        yield f"the box runs {found['id']} {found.get('version_id')}", f"install one of: {names}"
    if found.get("arch") and found["arch"] != "x86_64":
        yield f"the box is {found['arch']}", "the stacks are made of x86_64 wheels: use an x86_64 box"


@rule(
    "GF602",
    "packages-missing",
    level="error",
    source="without g++, an engine reports healthy and answers with errors",
    remedy="Install the ones it names, or let gpufleet do it: `host.install_packages`.",
)
def packages_missing(plan: BoxPlan) -> Said:
    """`host.install_packages` is `False` and packages that the stack or the toolkit needs are not there."""
    known = None if failed(plan, "packages") else plan.facts.get("packages")
    if not plan.settings.host.install_packages and known is not None:
        missing = [name for name in plan.packages if not known.get(name)]
        if missing:
            yield (
                f"not installed: {', '.join(missing)}",
                f"apt-get install {' '.join(missing)}, or host.install_packages",
            )


@rule(
    "GF603",
    "disk-space",
    level="error",
    source="a disk that fills up in the middle costs the whole download",
    remedy="Free space, or mount a larger disk there.",
)
def disk_space(plan: BoxPlan) -> Said:
    """Below `/opt/gpufleet` there is less room than the runtimes and models that are missing need, plus 1 GiB; or below
    `/opt/gpufleet/models`, where that is a disk of its own. What a deploy that was cut off has brought counts."""
    for path, need in needs(plan).items():
        have = free_mib(plan, path)
        if need and have is not None and have < need + SPARE_MIB:
            yield f"{path} has {have} MiB free, {need + SPARE_MIB} MiB are needed", "free space or use a larger disk"


@rule(
    "GF604",
    "port-taken",
    level="error",
    source="an engine that cannot listen ends, and is started again for ever",
    remedy="Stop what holds it, or give the instance another `port`.",
)
def port_taken(plan: BoxPlan) -> Said:
    """Something else listens on an instance's port, or two instances want the same one. An instance of the box that
    leaves `serve`, or moves to another port, gives it up and does not count; nor does a unit that the instance takes
    the place of (`replaces`)."""
    wanted: dict[int, str] = {}
    for instance in plan.instances:
        if instance.port in wanted:
            yield (
                f"{wanted[instance.port]} and {instance.name} both want port {instance.port}",
                "give one of them another `port`",
            )
        wanted[instance.port] = instance.name
        holder = (plan.facts.get("ports") or {}).get(str(instance.port))
        unit = str((holder or {}).get("unit") or "")
        if holder and not unit.startswith("gpufleet-") and unit not in replacing.stopped_for(plan, instance):
            who = unit or holder.get("command") or "another program"
            pid = f" (pid {holder['pid']})" if holder.get("pid") else ""
            place = replacing.offer(instance, unit, str(holder.get("command")))
            yield (
                f"port {instance.port} is taken by {who}{pid}",
                f"stop it{place}, or set another `port` for {instance.name}",
            )


@rule(
    "GF605",
    "probe-incomplete",
    level="warning",
    source="each source of facts has its own time limit",
    remedy="Look at what it names on the box, then deploy again.",
)
def probe_incomplete(plan: BoxPlan) -> Said:
    """A part of the look at the box failed or took too long; what depends on it is decided without it."""
    for error in plan.facts.get("errors") or []:
        yield f"could not read {error['source']}: {error['message']}", "look at it on the box; then deploy again"


@rule(
    "GF606",
    "unattended-upgrades",
    level="warning",
    source="field-problems 4",
    remedy="`host.hold_packages`; or `nvidia`, `libnvidia` and `linux-` in `Unattended-Upgrade::Package-Blacklist`.",
)
def unattended_upgrades(plan: BoxPlan) -> Said:
    """Upgrades at night may replace the driver under a running card: the next start of a service ends in
    `Driver/library version mismatch`. A deploy keeps them off it (`host.hold_packages`), so this is for boxes where it
    may not, or where another file of apt's empties the list again."""
    if keeps_off(plan) and (plan.facts.get("apt") or {}).get("upgrades") in ("missing", "changed"):
        return  # this deploy writes it
    found = plan.facts.get("unattended_upgrades") or {}
    held = any("nvidia" in name for name in plan.facts.get("holds") or [])
    if found.get("enabled") and plan.facts.get("driver") and on_gpus(plan) and not held and not _kept_back(found):
        yield (
            "unattended-upgrades may replace the NVIDIA driver",
            'host.hold_packages, or Unattended-Upgrade::Package-Blacklist { "nvidia"; "libnvidia"; "linux-"; }; in '
            "/etc/apt/apt.conf.d/52local, with no #clear of it in a later file",
        )


def _kept_back(upgrades: Mapping[str, Any]) -> bool:
    """Whether the blacklist, of regular expressions for the beginnings of names, has driver and libraries."""
    patterns = []
    for item in upgrades.get("blacklist") or []:
        with suppress(re.error):
            patterns.append(re.compile(item))
    return all(any(item.match(name) for item in patterns) for name in ("nvidia-driver-580", "libnvidia-compute-580"))


@rule(
    "GF607",
    "governor-powersave",
    level="warning",
    source="field-problems 56: 30 to 40 tok/s, and 60 to 70 with performance",
    remedy='`host.governor`: `"performance"`.',
)
def governor_powersave(plan: BoxPlan) -> Said:
    """The processor saves power: each step of decoding waits for it, and speed is halved."""
    governor = (plan.facts.get("cpu") or {}).get("governor") or ""
    if "powersave" in governor and on_gpus(plan) and plan.settings.host.governor is None:
        yield f"the CPU governor is {governor}", 'host.governor: "performance"'


@rule(
    "GF608",
    "hostname-unresolved",
    level="warning",
    source="seen: gloo waits 20 s for names at each start",
    remedy="The box's own name in /etc/hosts: `host.hosts_entry`.",
)
def hostname_unresolved(plan: BoxPlan) -> Said:
    """The box does not know the address of its own name; the processes of an engine wait for it at each start."""
    writes = plan.settings.host.hosts_entry and plan.facts.get("hosts_entry") is False  # this deploy does
    if plan.facts.get("hostname_resolves") is False and plan.instances and not writes:
        name = plan.facts.get("hostname") or "its own name"
        yield f"{name} does not resolve on the box", f'echo "127.0.1.1 {name}" >> /etc/hosts'


@rule(
    "GF609",
    "clock-unsynchronised",
    level="warning",
    source="certificates, apt's Valid-Until and the journal of a fleet need the time",
    remedy="`timedatectl set-ntp true`.",
)
def clock_unsynchronised(plan: BoxPlan) -> Said:
    """The clock is not kept by NTP. When it is wrong, apt and downloads refuse signatures and certificates."""
    if (plan.facts.get("clock") or {}).get("synchronized") is False:
        yield "the clock is not synchronised", "timedatectl set-ntp true (package systemd-timesyncd or chrony)"


@rule(
    "GF610",
    "host-setting-refused",
    level="warning",
    source="/proc/sys is read-only in containers; virtual machines scale no frequency",
    remedy="Set it where the box runs, or take it out of `host`.",
)
def host_setting_refused(plan: BoxPlan) -> Said:
    """The box did not take a value of `host` in an earlier deploy. It is not tried again while the same is wanted, but
    at each boot."""
    for what, why in refused(plan):
        yield f"{what}: {why}", "set it on the machine that this box runs on, or take it out of `host`"
