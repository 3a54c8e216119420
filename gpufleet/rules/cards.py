"""Rules about the cards themselves: their health, their modes, what else runs on them."""

from __future__ import annotations

from gpufleet.host import limits
from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Level, Said, rule
from gpufleet.rules.look import capability, gpus, listed, on_gpus
from gpufleet.traits import arch

# https://docs.nvidia.com/deploy/xid-errors: a link failed, or the card is gone; it does not come back by itself.
FATAL = {74: "an NVLink error", 79: "the card has fallen off the bus"}
# A program was at fault, or was ended: nothing of the hardware.
PROGRAMS = {13, 43, 45}
SCREEN = ("Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "kwin_x11", "sddm", "gdm", "lightdm", "plasmashell")


@rule(
    "GF109",
    "hardware-changed",
    level="error",
    source="a card that was taken out, or came back with half its links",
    remedy="Put the hardware right, or accept the new one: `gpufleet discover`.",
)
def hardware_changed(plan: BoxPlan) -> Said:
    """The cards or links are not those of the last look. A plan made for the box as it was would not be this one."""
    if plan.hardware_changes:
        said = "; ".join(plan.hardware_changes)
        yield (
            f"the hardware has changed: {said}",
            f"put it right; or accept it: gpufleet discover {plan.box.source.split(':')[0]} --limit {plan.name}",
        )


@rule(
    "GF120",
    "xid",
    level="warning",
    source="field-problems 12; NVIDIA's list of Xid errors",
    remedy="Reboot; a card that does it again is reseated, cooled or replaced.",
)
def xid(plan: BoxPlan) -> Said:
    """The kernel's log has GPU errors since boot. Xid 74 (a link failed) and 79 (the card is gone) refuse the box;
    13, 43 and 45 are mostly a program's own fault."""
    for event in plan.facts.get("xid") or []:
        code = event["code"]
        level: Level = "error" if code in FATAL else "info" if code in PROGRAMS else "warning"
        what = f", {FATAL[code]}" if code in FATAL else ""
        yield (
            f"Xid {code} on {event['bus_id']} since boot ({event.get('count', 1)} times{what})",
            "reboot the box; look at `journalctl -k -g Xid`, at cooling, power and the card's seat",
            level,
        )


@rule(
    "GF121",
    "expected-gpus",
    level="error",
    source="a card that is gone after a reboot",
    remedy="Reseat it; or correct `expect.gpus`.",
)
def expected_gpus(plan: BoxPlan) -> Said:
    """There are not as many GPUs as `expect.gpus` says."""
    expected, found = plan.settings.expect.gpus, len(plan.facts.get("gpus") or [])
    if expected is not None and found != expected:
        yield (
            f"{found} GPUs are seen, {expected} are expected",
            "reseat the missing card, look for Xid in the kernel log; or correct expect.gpus",
        )


@rule(
    "GF122",
    "mig-on",
    level="error",
    source="NVIDIA's MIG guide: no P2P between MIG instances",
    remedy="`nvidia-smi -mig 0`.",
)
def mig_on(plan: BoxPlan) -> Said:
    """A card is cut into MIG instances; gpufleet plans whole cards."""
    for gpu in gpus(plan):
        if gpu.get("mig"):
            yield f"MIG is on for GPU {gpu['index']}", f"nvidia-smi -i {gpu['index']} -mig 0, then reset the card"


@rule(
    "GF123",
    "ecc-on",
    level="info",
    source="NVML; on GDDR memory ECC is kept in the memory itself",
    remedy="`nvidia-smi -e 0` and a reboot, if you want the memory rather than the check.",
)
def ecc_on(plan: BoxPlan) -> Said:
    """ECC is on for a card with GDDR memory, where it costs a part of size and speed. (HBM has room of its own for
    it.)"""
    found = [gpu["index"] for gpu in gpus(plan) if gpu.get("ecc") and capability(gpu) in ((7, 5), (8, 6), (8, 9))]
    if found:
        yield f"ECC is on for GPU {listed(found)}", "nvidia-smi -e 0, then reboot, if memory counts more"


@rule(
    "GF124",
    "persistence-off",
    level="info",
    source="field-problems 57; NVIDIA's driver persistence guide",
    remedy="`host.persistence_mode`: `True`.",
)
def persistence_off(plan: BoxPlan) -> Said:
    """Without persistence mode the driver wakes each card anew, a second or two each, and forgets power limits."""
    mode = plan.settings.host.persistence_mode
    found = [gpu["index"] for gpu in gpus(plan) if gpu.get("persistence") is False]
    if found and not mode:
        level: Level = "warning" if limits(plan) else "info"
        yield (
            f"persistence mode is off for GPU {listed(found)}",
            "host.persistence_mode: True; or systemctl enable --now nvidia-persistenced",
            level,
        )


@rule(
    "GF125",
    "power-limit",
    level="info",
    source="field-problems 57; box B of the recipes is limited and reaches it",
    remedy="`host.power_limit`; or leave it, when heat or the supply ask for it.",
)
def power_limit(plan: BoxPlan) -> Said:
    """A card may take less power than its maker meant: speeds are then not those of the same card elsewhere."""
    meant = limits(plan)
    for gpu in gpus(plan):
        power = gpu.get("power") or {}
        limit, default = power.get("limit_w"), power.get("default_w")
        if limit and default and limit < default and gpu.get("uuid") not in meant:
            yield (
                f"GPU {gpu['index']} is limited to {limit} W of {default} W",
                f"host.power_limit: {default}, unless it is meant so",
            )


@rule(
    "GF126",
    "pcie-width",
    level="info",
    source="field-problems 37; bridged cards run on x1 and x4, unbridged ones do not",
    remedy="Another slot; or reseat the card, clean its contacts, replace the riser.",
)
def pcie_width(plan: BoxPlan) -> Said:
    """A card has fewer PCIe lanes than it could use. Four lanes and less are a warning for cards that have no NVLink to
    talk over. (The generation falls when a card idles, so it says nothing.)"""
    bridged = {
        index for pair, link in (plan.facts.get("links") or {}).items() if link[:2] == "NV" for index in pair.split("-")
    }
    for gpu in gpus(plan):
        pcie = gpu.get("pcie") or {}
        width, most = pcie.get("width"), pcie.get("width_max")
        if width and most and width < most:
            slow = width <= 4 and len(gpus(plan)) > 1 and str(gpu["index"]) not in bridged
            yield (
                f"GPU {gpu['index']} has {width} PCIe lanes of {most}",
                "use a slot with more lanes; reseat the card or replace its riser if the slot has them",
                "warning" if slow else "info",
            )


@rule(
    "GF127",
    "screen-on-gpu",
    level="warning",
    source="field-problems 54",
    remedy="No display manager: `systemctl set-default multi-user.target`; or a lower gpu-memory-utilization.",
)
def screen_on_gpu(plan: BoxPlan) -> Said:
    """A desktop runs on a card that is to compute: it takes memory and time, more whenever somebody sits there."""
    used = {index for instance in on_gpus(plan) for index in instance.gpus}
    for gpu in gpus(plan):
        names = sorted({str(item.get("name")) for item in gpu.get("processes") or [] if _draws(item.get("name"))})
        if gpu["index"] in used and (names or gpu.get("display_active")):
            manager = plan.facts.get("display_manager")
            yield (
                f"GPU {gpu['index']} drives a screen" + (f" ({listed(names)})" if names else ""),
                f"systemctl disable --now {manager if isinstance(manager, str) and manager else 'display-manager'}, or "
                'serve_args = {"gpu-memory-utilization": 0.85}',
            )


def _draws(name: object) -> bool:
    return str(name or "").split("/")[-1].startswith(SCREEN)


@rule(
    "GF128",
    "card-too-old",
    level="warning",
    source="CUDA 13 begins at compute capability 7.5; the engines' wheels at 7.0 or 7.5",
    remedy="Serve on newer cards, or with another engine, outside gpufleet.",
)
def card_too_old(plan: BoxPlan) -> Said:
    """No engine here has kernels for cards older than Volta. Information where newer cards of the box serve."""
    old = [gpu for gpu in gpus(plan) if capability(gpu) < (7, 0)]
    if old:
        used = {index for instance in on_gpus(plan) for index in instance.gpus}
        served = used and not used & {gpu["index"] for gpu in old}
        level: Level = "info" if served else "warning"
        yield (
            f"{old[0]['name']} ({arch(old[0])}) is older than any stack here is made for",
            "nothing has to be done: the newer cards serve, it stays idle" if served else "serve on newer cards",
            level,
        )


@rule(
    "GF129",
    "virtual-box",
    level="info",
    source="field-problems 10 and 32",
    remedy="Serve on the machine itself, or see that the container has all of the driver's devices.",
)
def virtual_box(plan: BoxPlan) -> Said:
    """Containers have the driver of their host: without `/dev/nvidia-uvm` nvidia-smi works and CUDA says `unknown
    error`. Under WSL links are inactive and there is no P2P."""
    kind = plan.facts.get("virtualization")
    if not gpus(plan):
        return
    if kind == "wsl":
        yield (
            "the box is WSL: no NVLink and no P2P there",
            "serve on Linux itself when several cards are used",
            "warning",
        )
    elif kind in ("lxc", "docker", "podman"):
        yield f"the box is a container ({kind})", "pass in /dev/nvidia-uvm and /dev/nvidia-uvm-tools, not only nvidia0"
