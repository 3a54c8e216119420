"""Rules about links: NVLink bridges, P2P over PCIe, what stands in its way."""

from __future__ import annotations

from gpufleet.plan import BoxPlan, Instance
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import all_nvlink, archs, cards, gpus, grouped, is_geforce, listed, pairs, states
from gpufleet.topology import bridges, degraded

RESEAT = "reseat the bridge and look at `nvidia-smi nvlink -s`"


@rule(
    "GF301",
    "nvlink-degraded",
    level="error",
    source="field-problems 32; NCCL 557 and 340",
    remedy="Reseat the bridge, look at `nvidia-smi nvlink -s`; or correct `expect.nvlink`.",
)
def nvlink_degraded(plan: BoxPlan) -> Said:
    """A pair has fewer NVLinks than it should: a bridge is half seated, a link is down. How many there should be,
    `expect.nvlink` says. Without it a warning tells of a pair with fewer than another pair of the same cards, and of
    GeForce cards of which some links are up and some are not: their bridges take all they have."""
    expected, links = plan.settings.expect.nvlink, plan.facts.get("links") or {}
    if expected is not None:
        for line in degraded(links, gpus(plan), expected):
            yield line, f"{RESEAT}; or correct expect.nvlink"
        return
    for line in degraded(links, gpus(plan), None) or _half_up(plan):
        yield line, f'{RESEAT}; if it is meant to be so: silence = ["GF301"]', "warning"


def _half_up(plan: BoxPlan) -> list[str]:
    """One line for each GeForce card with an active and an inactive NVLink; scenarios tell nothing of single links."""
    found = []
    for gpu in gpus(plan):
        up = [bool(link.get("active")) for link in gpu.get("nvlinks") or []]
        if is_geforce(gpu) and any(up) and not all(up):
            found.append(f"GPU {gpu['index']} ({gpu['name']}): {sum(up)} of its {len(up)} NVLinks are up")
    return found


@rule(
    "GF302",
    "nvlink-unexpected",
    level="warning",
    source="an inventory that is older than the box",
    remedy="Correct `expect.nvlink`.",
)
def nvlink_unexpected(plan: BoxPlan) -> Said:
    """A pair has more NVLinks than `expect.nvlink` says, so a half-seated bridge would not be noticed."""
    expected = plan.settings.expect.nvlink
    most = max(bridges(plan.facts.get("links") or {}).values(), default=0)
    if expected is not None and most > expected:
        yield f"a pair has {most} NVLinks, expected: {expected}", f"set expect.nvlink to {most}"


@rule(
    "GF303",
    "p2p-read-only",
    level="warning",
    source="field-problems 29 and 30; vLLM RFC 51513",
    remedy='`serve_env = {"NCCL_P2P_DISABLE": "1"}` and `disable-custom-all-reduce`.',
)
def p2p_read_only(plan: BoxPlan) -> Said:
    """Cards may read each other's memory and not write it. P2P then counts as there, and hangs or gives wrong data."""
    written, read = plan.facts.get("p2p_write") or {}, plan.facts.get("p2p_read") or {}
    for instance in grouped(plan):
        broken = [pair for pair in pairs(instance) if read.get(pair) == "OK" and written.get(pair) not in (None, "OK")]
        if broken and not _without_p2p(instance):
            yield (
                f"{instance.name}: P2P can be read and not written between GPUs {broken[0].replace('-', ' and ')}",
                'serve_env = {"NCCL_P2P_DISABLE": "1"}, and serve_args = {"disable-custom-all-reduce": True}',
            )


def _without_p2p(instance: Instance) -> bool:
    return instance.env.get("NCCL_P2P_DISABLE") == "1"


def _over_pcie(plan: BoxPlan) -> list[Instance]:
    """Groups of which some cards may talk directly over PCIe, as far as is known."""
    return [
        instance
        for instance in grouped(plan)
        if not all_nvlink(plan, instance)
        and not _without_p2p(instance)
        and set(states(plan, instance, "p2p_read") or ["OK"]) & {"OK"}
    ]


@rule(
    "GF304",
    "iommu-translates",
    level="warning",
    source="field-problems 30 and 31; NCCL's troubleshooting guide; vLLM 9920",
    remedy="`iommu=pt` on the kernel's command line, or VT-d/AMD-Vi off in the firmware.",
)
def iommu_translates(plan: BoxPlan) -> Said:
    """The IOMMU translates what cards send to each other over PCIe: NCCL hangs at start, or cards fault."""
    iommu = plan.facts.get("iommu") or {}
    if iommu.get("enabled") and iommu.get("passthrough") is False:
        for instance in _over_pcie(plan):
            yield (
                f"{instance.name}: the IOMMU translates between its {len(instance.gpus)} GPUs",
                "add iommu=pt to GRUB_CMDLINE_LINUX_DEFAULT, run update-grub and reboot; until then "
                'serve_env = {"NCCL_P2P_DISABLE": "1"}',
            )


@rule(
    "GF306",
    "acs-redirects",
    level="warning",
    source="field-problems 30; NCCL's troubleshooting guide",
    remedy="ACS off in the firmware, or by setpci at boot.",
)
def acs_redirects(plan: BoxPlan) -> Said:
    """PCIe bridges send what one card writes to another up to the root and back (ACS): P2P is slow, or hangs."""
    bridges_found = (plan.facts.get("iommu") or {}).get("acs") or []
    for instance in _over_pcie(plan):
        if bridges_found:
            yield (
                f"{instance.name}: ACS redirects on {len(bridges_found)} PCIe bridges ({bridges_found[0]} …)",
                f"turn ACS off in the firmware, or at boot: setpci -s {bridges_found[0]} ECAP_ACS+6.w=0000",
            )


@rule(
    "GF307",
    "no-p2p",
    level="info",
    source="field-problems 37; box A of the recipes: 36 tok/s without a bridge, box B with one: 84",
    remedy="An NVLink bridge where the cards take one; else know it for what it is.",
)
def no_p2p(plan: BoxPlan) -> Said:
    """The cards of an instance have neither NVLink nor P2P, so all they say to each other goes through the memory of
    the host. GeForce cards have no P2P over PCIe by NVIDIA's choice; a pair of 2080 Ti decodes 40 to 50 tok/s so."""
    for instance in grouped(plan):
        found = states(plan, instance, "p2p_read")
        known = bool(found) and "OK" not in found
        consumer = all(is_geforce(gpu) for gpu in cards(plan, instance))
        turing = consumer and archs(plan, instance) == {"sm75"}
        bridged = any(link.startswith("NV") for link in states(plan, instance, "links"))
        if not bridged and (known or (consumer and not found)):
            bridge = "a bridge doubles the speed; without one " if turing else ""
            yield (
                f"{instance.name}: GPUs {listed(instance.gpus)} have neither NVLink nor P2P ({instance.link})",
                f"{bridge}fewer GPUs to an instance mean less traffic, where the model fits on them",
            )


@rule(
    "GF309",
    "nvlink-without-p2p",
    level="warning",
    source="NCCL's troubleshooting guide (virtual machines); NVIDIA's Fabric Manager guide",
    remedy="Cards of one virtual machine passed through together; behind an NVSwitch, `nvidia-fabricmanager` running.",
)
def nvlink_without_p2p(plan: BoxPlan) -> Said:
    """NVLink joins two cards, and the driver lets neither read the other's memory: what they say to each other goes
    through the memory of the host, as if there were no bridge."""
    links, read = plan.facts.get("links") or {}, plan.facts.get("p2p_read") or {}
    for instance in grouped(plan):
        lost = [
            pair for pair in pairs(instance) if links.get(pair, "").startswith("NV") and read.get(pair, "OK") != "OK"
        ]
        if lost and not _without_p2p(instance):
            yield (
                f"{instance.name}: GPUs {lost[0].replace('-', ' and ')} are joined by {links[lost[0]]}, and the driver "
                f"has no P2P between them ({read[lost[0]]})",
                "look at `nvidia-smi topo -p2p r`; in a virtual machine pass all cards of a bridge through together; "
                "behind an NVSwitch start nvidia-fabricmanager",
            )
