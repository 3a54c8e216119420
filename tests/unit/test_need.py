"""What cards must have free before an instance is restarted on them."""

from __future__ import annotations

import math
from typing import Any

from gpufleet.need import gpus
from tests.unit.fleets import cpu_facts, gpu_facts, plan, stack

ON_GPUS = stack("engine-gpu", arch=["sm75"], apt=[])


def needed(facts: dict[str, Any], args: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    found = plan(facts, {"stack": "engine-gpu", "serve_args": args, **more}, stacks=[ON_GPUS])
    return gpus(found.instances[0])


def test_a_share_of_each_card() -> None:
    facts = gpu_facts()
    facts["gpus"][1]["memory_mib"] = 11264
    found = needed(facts, {"gpu-memory-utilization": 0.5}, tensor_parallel_size=2)
    assert found == [{"uuid": "GPU-0", "need_mib": 11073}, {"uuid": "GPU-1", "need_mib": 5537}]


def test_the_engines_default_where_nothing_is_said() -> None:
    (found,) = needed(gpu_facts(count=1), {})
    assert found["need_mib"] == math.ceil(22528 * 0.983 * 0.92)


def test_no_more_than_a_card_has() -> None:
    (found,) = needed(gpu_facts(count=1), {"gpu-memory-utilization": 7})
    assert found["need_mib"] == math.ceil(22528 * 0.983)


def test_of_a_model_without_sizes_and_a_given_cache_nothing_is_known() -> None:
    (found,) = needed(gpu_facts(count=1), {"kv-cache-memory-bytes": "4G"})
    assert found["need_mib"] == 0


def test_nothing_on_a_processor() -> None:
    facts = cpu_facts()
    assert gpus(plan(facts).instances[0]) == []
