"""What an instance's cards must have free before it starts, as the box checks it before the stop. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufleet.instance import Instance
from gpufleet.memory import RESERVED
from gpufleet.memory_args import fraction, number

UTILIZATION = 0.92  # vLLM's default of gpu-memory-utilization


def gpus(instance: Instance, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """[{"uuid", "need_mib"}] of each card, never more than the card has; none for an instance on the CPU.

    vLLM refuses to start where less is free than `gpu-memory-utilization` of the card; what its context takes comes
    before that. Of an engine that says nothing of the kind, and of a model without sizes, nothing is asked.
    """
    by_index = {gpu["index"]: gpu for gpu in facts.get("gpus") or []}
    cards = [by_index[index] for index in instance.gpus]
    return [
        {"uuid": str(card["uuid"]), "need_mib": _need(instance, int((card["memory_mib"] or 0) * (1 - RESERVED)))}
        for card in cards
    ]


def _need(instance: Instance, usable_mib: int) -> int:
    memory, args = instance.memory, instance.args
    context = memory.context_mib if memory else 0
    if instance.stack.engine == "vllm" and number(args.get("kv-cache-memory-bytes"), -1) < 0:
        need = context + int(usable_mib * fraction(args.get("gpu-memory-utilization"), UTILIZATION))
    else:
        need = context + (memory.budget_mib if memory else 0)
    return min(need, usable_mib)
