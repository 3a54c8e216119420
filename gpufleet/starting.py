"""What a unit has the kit do before its service starts and after it ended: a file of the release."""

from __future__ import annotations

from typing import Any

from gpufleet import need
from gpufleet.environment import cache_path, state_path
from gpufleet.instance import Instance

FILE = "start.json"
# An engine that was killed leaves its workers for some seconds; one that the kernel cannot end never frees its memory.
WAIT_SECONDS = 120


def unit_name(instance: Instance) -> str:
    return f"gpufleet-{instance.name}.service"


def spec(instance: Instance) -> dict[str, Any]:
    """What the kit's verbs `before-start` and `after-stop` read."""
    return {
        "instance": instance.name,
        "unit": unit_name(instance),
        "gpus": need.gpus(instance),
        "wait_seconds": WAIT_SECONDS,
        "start_seconds": instance.model.gate.timeout,
        "state": state_path(instance.name),
        "cache": cache_path(instance.name, instance.runtime, instance.model),
    }
