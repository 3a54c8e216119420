"""Rules about memory of cards and host."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpufleet.plan import BoxPlan
from tests.unit.findings import Case, assert_fires, cards, engine, identify, said, served, shaped
from tests.unit.fleets import SHA, cpu_facts, model, plan, stack

AMPERE = engine("sm86", args={"dtype": "half", "disable-custom-all-reduce": True})
BIG = {"of_each": {"memory_mib": 24576}}


def two_27b(length: int | None = None, **args: Any) -> BoxPlan:
    """Two instances of a 27 B on two cards of 24 GB, each on one of them."""
    more = {"max-model-len": length} if length else {}
    data = {"instances": 2, "tensor_parallel_size": 1}
    return served(cards(2, (8, 6), "NV4", **BIG), AMPERE, {"max-num-seqs": 1, **more, **args}, data, **shaped())


def on_cpu(length: int, cache: Any = 1 << 30, **data: Any) -> BoxPlan:
    args = {"max-model-len": length, "kv-cache-memory-bytes": cache}
    return plan(cpu_facts(), {"serve_args": args, **data}, models=[model(**shaped())])


def process(mib: int, pid: int = 4242) -> dict[str, Any]:
    return {"pid": pid, "memory_mib": mib, "name": "python3", "kind": "compute"}


def used(mib: int, args: dict[str, Any] | None = None, **facts: Any) -> BoxPlan:
    return served(cards(2, (8, 6), of_each={"processes": [process(mib)]}, **facts), AMPERE, args)


def host(args: dict[str, Any] | None = None, **facts: Any) -> BoxPlan:
    return served(cards(2, (8, 6), **facts), AMPERE, args, **shaped())


def memory(total: int, swap: int = 0) -> dict[str, int]:
    return {"total_mib": total, "available_mib": total, "swap_mib": swap}


WORKER = {"pid": 78, "memory_mib": 20000, "name": "VLLM::Worker_TP", "kind": "compute"}
OTHER = {"other": {"port": 8001, "service": {"active": "active", "pid": 77}}}
RUNNING = {"tiny": {"port": 8000, "service": {"active": "active", "pid": 77}}}
SHARDS = {"source": {"http": "http://192.0.2.1/x/", "files": {"a.safetensors": {"size": 20 << 30, "sha256": SHA}}}}

CASES = [
    Case("GF401", "error", "262144 tokens are asked for", two_27b(262144)),
    Case("GF401", "error", "weights take", served(cards(1, (8, 6), of_each={"memory_mib": 12288}), AMPERE, **shaped())),
    Case("GF402", "error", "python3 (pid 4242)", used(8000)),
    Case("GF402", "warning", "pid 4242", used(8000, instances=OTHER)),
    Case("GF402", "error", "VLLM::Worker_TP", served(cards(1, (8, 6), of_each={"processes": [WORKER]}), AMPERE)),
    Case("GF403", "warning", "GiB of swap", host(memory=memory(12000))),
    Case("GF402", "error", "VLLM::Worker_TP", served(cards(1, (8, 6), of_each={"processes": [WORKER]}), AMPERE)),
    Case("GF403", "warning", "49152 MiB", served(cards(2, (8, 6), memory=memory(40000)), AMPERE, **SHARDS)),
    Case("GF404", "warning", "1024 MiB are needed", host(shm_mib=64, shm_free_mib=64)),
    Case("GF404", "warning", "vllm_offload", host({"kv-offloading-size": 20}, shm_mib=16000, shm_free_mib=16000)),
    Case("GF409", "warning", "16 GiB of weights", plan(cpu_facts(), models=[model(**shaped())])),
    Case("GF409", "error", "8 GiB of memory", plan(cpu_facts(memory=memory(8192)), models=[model(**shaped())])),
    Case("GF410", "error", "200000 tokens are asked for", on_cpu(200000)),
    Case("GF410", "error", '"kv-cache-memory-bytes": ', on_cpu(200000)),
    Case("GF405", "error", "kv-offloading-size", host({"kv-offloading-size": 64}, memory=memory(48000))),
    Case("GF405", "error", "cpu-offload-gb", host({"cpu-offload-gb": 50}, memory=memory(48000))),
    Case("GF406", "warning", "is 2", host(overcommit_memory=2)),
    Case("GF406", "warning", "is 0", host({"kv-offloading-size": 6}, overcommit_memory=0)),
    Case("GF407", "error", "set it to 0.92", host({"gpu-memory-utilization": 92})),
    Case("GF408", "error", "gpu-memory-utilization", host({"gpu-memory-utilization": 1.0})),
    Case("GF408", "error", "kv-cache-memory-bytes", host({"kv-cache-memory-bytes": 20 << 30})),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_it_is_found(case: Case) -> None:
    assert_fires(case)


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("GF401", served(cards(2, (8, 6), **BIG), AMPERE, {"max-model-len": 65536, "max-num-seqs": 1}, **shaped())),
        ("GF401", served(cards(2, (8, 6), **BIG), AMPERE, {"max-model-len": 10_000_000})),
        ("GF402", used(1000)),
        ("GF402", used(8000, {"gpu-memory-utilization": 0.6})),
        ("GF402", used(20000, instances=RUNNING)),
        ("GF402", served(cards(2, (8, 6), of_each={"processes": [process(20000, 77)]}, instances=OTHER), AMPERE)),
        ("GF402", served(cards(2, (8, 6), of_each={"processes": [WORKER]}, instances=OTHER), AMPERE)),
        ("GF403", host(memory=memory(12000, 8000))),
        ("GF403", served(cards(2, (8, 6), memory=memory(100)), AMPERE, source={"path": "/srv/x"})),
        ("GF404", host(shm_mib=16000, shm_free_mib=16000)),
        ("GF404", host(shm_mib=0, shm_free_mib=0, errors=[{"source": "hardware", "message": "no answer"}])),
        ("GF404", served(cards(1, (8, 6), shm_free_mib=64), AMPERE)),
        ("GF405", host({"kv-offloading-size": 6}, memory=memory(48000))),
        ("GF406", host(overcommit_memory=0)),
        ("GF406", host({"kv-offloading-size": 6}, overcommit_memory=1)),
        ("GF406", served(cards(2, (8, 6), overcommit_memory=2), AMPERE, {}, {"host": {"overcommit_memory": 1}})),
        ("GF407", host({"gpu-memory-utilization": 0.92})),
        ("GF408", host({"gpu-memory-utilization": 0.92})),
        ("GF409", plan(cpu_facts(), models=[model(**shaped(weights_mib=1433))])),
        ("GF410", on_cpu(4096)),
        ("GF410", on_cpu(200000, 64 << 30)),
        ("GF410", on_cpu(200000, None)),
        ("GF410", on_cpu(200000, serve_env={"VLLM_CPU_KVCACHE_SPACE": "40"})),
        ("GF410", host({"kv-cache-memory-bytes": 1 << 30, "max-model-len": 200000})),
    ],
)  # fmt: skip
def test_what_is_in_order_is_not(rule: str, found: BoxPlan) -> None:
    assert said(found, rule) == []


def test_the_length_that_the_remedy_names_fits() -> None:
    remedy = said(two_27b(262144), "GF401")[0].remedy
    length = int(re.findall(r'"max-model-len": (\d+)', remedy)[0])
    assert length >= 1024
    assert said(two_27b(length), "GF401") == []
    assert said(two_27b(length + 2048), "GF401") != []


def test_each_remedy_for_a_small_cache_on_a_processor_is_enough() -> None:
    (found,) = said(on_cpu(200000), "GF410")
    shorter, larger = (int(number) for number in re.findall(r": (\d+)\}", found.remedy))
    assert shorter >= 1024 and said(on_cpu(shorter), "GF410") == []
    assert said(on_cpu(200000, larger), "GF410") == [] and said(on_cpu(200000, larger // 2), "GF410") != []


def test_more_cards_for_one_instance_are_offered_where_there_are_some() -> None:
    assert "tensor_parallel_size = 2 (one instance)" in said(two_27b(262144), "GF401")[0].remedy
    alone = served(cards(1, (8, 6), **BIG), AMPERE, {"max-model-len": 262144}, **shaped())
    assert "tensor_parallel_size" not in said(alone, "GF401")[0].remedy


def test_an_fp8_cache_is_offered_where_the_cards_have_one() -> None:
    assert '"kv-cache-dtype": "fp8"' in said(two_27b(262144), "GF401")[0].remedy
    assert "kv-cache-dtype" not in said(two_27b(262144, **{"kv-cache-dtype": "fp8"}), "GF401")[0].remedy
    turing = served(cards(1, of_each={"memory_mib": 22528}), engine("sm75"), {"max-model-len": 262144}, **shaped())
    assert "kv-cache-dtype" not in said(turing, "GF401")[0].remedy


@pytest.mark.parametrize("args", [{"gpu-memory-utilization": 1.0}, {"kv-cache-memory-bytes": 20 << 30}])
def test_the_share_that_the_remedy_names_starts(args: dict[str, Any]) -> None:
    found = said(host(args), "GF408")[0].remedy
    name, value = re.findall(r'"([a-z-]+)": ([\d.]+)', found)[0]
    right = {name: float(value) if "." in value else int(value)}
    assert said(host(right), "GF408") == []


def test_an_engine_that_takes_what_is_free_is_told_so_in_its_own_words() -> None:
    by = stack("lmdeploy-0.18.0", engine="lmdeploy", arch=["sm86"], args={"session-len": 8192})
    facts = cards(1, (8, 6), of_each={"memory_mib": 24576, "processes": [process(20000)]})
    found = said(served(facts, by, **shaped()), "GF402")
    assert [finding.remedy for finding in found] == ["stop it"]
