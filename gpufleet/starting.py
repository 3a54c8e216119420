"""What a unit has the kit do before its service starts and after it ended: a file of the release."""

from __future__ import annotations

import math
from typing import Any

from gpufleet.environment import cache_path, state_path
from gpufleet.instance import Instance
from gpufleet.memory import RESERVED
from gpufleet.memory_args import fraction

# Of the kit's newest version, which is what units call: see operations/remote.py.
KIT = "/opt/gpufleet/kit/gpufleet-kit.pyz"
FILE = "start.json"
# An engine that was killed leaves its workers for some seconds; one that the kernel cannot end never frees its memory.
WAIT_SECONDS = 120
UTILIZATION = 0.92  # vLLM's own default, gpufleet.memory_args


def unit_name(instance: Instance) -> str:
    return f"gpufleet-{instance.name}.service"


def spec(instance: Instance) -> dict[str, Any]:
    """What the kit's verbs `before-start` and `after-stop` read."""
    return {
        "instance": instance.name,
        "unit": unit_name(instance),
        "gpus": needs(instance),
        "wait_seconds": WAIT_SECONDS,
        "start_seconds": instance.model.gate.timeout,
        "state": state_path(instance.name),
        "cache": cache_path(instance.name, instance.runtime, instance.model),
    }


def needs(instance: Instance) -> list[dict[str, Any]]:
    """[{"uuid", "need_mib"}]: what has to be free on each card; 0 where nobody knows.

    vLLM asks for `gpu-memory-utilization` of what CUDA shows of the card before it loads anything, and ends when that
    is not free. Of another engine it is the least that it takes, where the model's page gives sizes.
    """
    return [
        {"uuid": uuid, "need_mib": _need(instance, size)}
        for uuid, size in zip(instance.uuids, instance.sizes, strict=True)
    ]


def _need(instance: Instance, size: int | None) -> int:
    if instance.stack.engine == "vllm" and size and instance.args.get("kv-cache-memory-bytes") is None:
        share = fraction(instance.args.get("gpu-memory-utilization"), UTILIZATION)
        return math.ceil(size * (1 - RESERVED) * min(max(share, 0.0), 1.0))
    return instance.memory.budget_mib if instance.memory else 0
