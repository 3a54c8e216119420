"""Rules about the power limits that an owner sets."""

from __future__ import annotations

from gpufleet.host import is_called, limits
from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import gpus, listed


@rule(
    "GF130",
    "power-limit-range",
    level="error",
    source="NVML: nvmlDeviceGetPowerManagementLimitConstraints",
    remedy="A limit that the card knows; `nvidia-smi -q -d POWER` shows them.",
)
def power_limit_range(plan: BoxPlan) -> Said:
    """`host.power_limit` is below or above what a card can be set to. The driver refuses such a limit."""
    wanted = limits(plan)
    for gpu in gpus(plan):
        watts, power = wanted.get(gpu.get("uuid") or ""), gpu.get("power") or {}
        least, most = power.get("min_w"), power.get("max_w")
        if watts is not None and least is not None and most is not None and not least <= watts <= most:
            yield (
                f"GPU {gpu['index']} ({gpu.get('name')}) cannot be limited to {watts} W",
                f"set host.power_limit to {least} to {most} W for it",
            )


@rule(
    "GF131",
    "power-limit-names",
    level="warning",
    source="a name that is spelled in another way limits nothing, and nobody notices before the room is hot",
    remedy="The card's name as `nvidia-smi -L` has it, or the end of it, or its UUID.",
)
def power_limit_names(plan: BoxPlan) -> Said:
    """`host.power_limit` has limits by name or UUID, and none of the box's cards is called so."""
    limit = plan.settings.host.power_limit
    if not isinstance(limit, dict) or not limit or not gpus(plan):
        return
    if not any(is_called(gpu, key) for gpu in gpus(plan) for key in limit):
        names = listed(sorted({str(gpu.get("name")) for gpu in gpus(plan)}))
        yield f"host.power_limit names {listed(sorted(limit))}, and the cards are {names}", f"write {names}"
