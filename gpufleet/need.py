"""What an instance's cards must have free before it starts: its box checks it before a stop and at each start."""

from __future__ import annotations

import math
from typing import Any

from gpufleet.instance import Instance
from gpufleet.memory import RESERVED
from gpufleet.memory_args import fraction, number

UTILIZATION = 0.92  # vLLM's default of gpu-memory-utilization


def gpus(instance: Instance) -> list[dict[str, Any]]:
    """[{"uuid", "need_mib"}] of each card; 0 where nobody knows; none for an instance on the CPU.

    vLLM asks for `gpu-memory-utilization` of what CUDA shows of the card before it loads anything, and ends when that
    is not free. Of another engine it is the least that it takes, where the model's page gives sizes. What the driver's
    context takes besides is left out: it is an estimate, and a better one would change each release.
    """
    return [
        {"uuid": uuid, "need_mib": _need(instance, size)}
        for uuid, size in zip(instance.uuids, instance.sizes, strict=True)
    ]


def _need(instance: Instance, size: int | None) -> int:
    if instance.stack.engine == "vllm" and size and number(instance.args.get("kv-cache-memory-bytes"), -1) < 0:
        share = fraction(instance.args.get("gpu-memory-utilization"), UTILIZATION)
        return math.ceil(size * (1 - RESERVED) * min(max(share, 0.0), 1.0))
    return instance.memory.budget_mib if instance.memory else 0
