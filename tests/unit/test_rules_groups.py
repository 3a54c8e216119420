"""Rules about links, groups of cards and custom all-reduce."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet import scenario
from gpufleet.plan import BoxPlan
from tests.unit.findings import Case, assert_fires, cards, engine, identify, said, served, shaped
from tests.unit.fleets import cpu_facts, gpu_facts, plan
from tests.unit.topologies import SCENARIOS

TURING = engine("sm75", provides=["fp8-kv-sm75"])
PLAIN = engine("sm70", "sm75", "sm86", "sm120")
OFF, ON = {"disable-custom-all-reduce": True}, {"disable-custom-all-reduce": False}
SEGMENTS = {"serve_env": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True"}}
TWO = {"tensor_parallel_size": 2}


def lab(name: str) -> dict[str, Any]:
    """The box of a scenario, on a system that is supported."""
    return {**cpu_facts(), **scenario.load(SCENARIOS / f"{name}.json")}


def pair(capability: tuple[int, int] = (8, 6), link: str = "NV4", **facts: Any) -> BoxPlan:
    return served(cards(2, capability, link, **facts), PLAIN, OFF)


def quad(link: str, size: int, p2p_read: dict[str, str] | None = None, **links: str) -> BoxPlan:
    facts = cards(4, (8, 6), link, p2p_read=p2p_read or {})
    facts["links"].update({name.replace("_", "-").lstrip("p"): value for name, value in links.items()})
    return served(facts, PLAIN, OFF, {"tensor_parallel_size": size})


def up(active: list[bool], capability: tuple[int, int] = (7, 5)) -> dict[str, Any]:
    """Two cards, each with links that are up or not."""
    links = [{"link": number, "active": each} for number, each in enumerate(active)]
    return cards(2, capability, f"NV{sum(active) or 1}", of_each={"nvlinks": links})


def expecting(links: int, facts: dict[str, Any]) -> BoxPlan:
    return served(facts, PLAIN, OFF, {"expect": {"nvlink": links}})


def unequal(mib: int = 12288) -> BoxPlan:
    facts = cards(2, (8, 6))
    facts["gpus"][1]["memory_mib"] = mib
    return served(facts, PLAIN, OFF, TWO)


TRANSLATING = {"enabled": True, "passthrough": False, "acs": []}
REDIRECTING = {"enabled": False, "passthrough": None, "acs": ["0000:00:01.0", "0000:00:03.0"]}
HALF = {"p0_1": "NV3", "p2_3": "NV4"}

PAIRS, FOUR = lab("quad-3090-two-pairs"), {"tensor_parallel_size": 4}
HUGE = shaped(weights_mib=60000)

CASES = [
    Case("GF301", "error", "reseat", expecting(4, cards(2, (8, 6), "NV3"))),
    Case("GF301", "error", "no NVLink", expecting(2, cards(link="PHB"))),
    Case("GF301", "warning", "silence", quad("SYS", 2, **HALF)),
    Case("GF301", "warning", "GPU 1 (NVIDIA GeForce RTX 2080 Ti): 1 of its 2", served(up([True, False]), PLAIN, OFF)),
    Case("GF302", "warning", "set expect.nvlink to 4", expecting(2, cards(2, (8, 6), "NV4"))),
    Case("GF303", "warning", "NCCL_P2P_DISABLE", pair(link="PHB", p2p_read={"0-1": "OK"}, p2p_write={"0-1": "CNS"})),
    Case("GF304", "warning", "iommu=pt", pair(link="PHB", iommu=TRANSLATING)),
    Case("GF306", "warning", "setpci -s 0000:00:01.0", pair(link="PHB", iommu=REDIRECTING)),
    Case("GF307", "info", "doubles", served(cards(link="PHB"), TURING)),
    Case("GF307", "info", "neither NVLink nor P2P", pair(link="PHB", p2p_read={"0-1": "CNS"})),
    Case("GF309", "warning", "0 and 1 are joined by NV4", pair(p2p_read={"0-1": "CNS"})),
    Case("GF309", "warning", "1 and 2 are joined", quad("NV18", 4, p2p_read={"0-1": "OK", "1-2": "NS"})),
    Case("GF305", "warning", "RTX 3090", served(cards(2, (8, 6), "NV4"), PLAIN)),
    Case("GF305", "warning", "RTX 5090", served(cards(2, (12, 0), "PHB"), PLAIN)),
    Case("GF305", "warning", "2080 Ti", served(cards(), PLAIN)),
    Case("GF305", "info", "reference boxes", served(cards(), TURING)),
    Case("GF305", "info", "no P2P", served(cards(2, (8, 6), "PHB", p2p_read={"0-1": "CNS"}), PLAIN)),
    Case("GF305", "error", "V100", served(cards(2, (7, 0), "PHB"), PLAIN)),
    Case("GF305", "error", "V100", served(lab("quad-v100-ring"), PLAIN, ON, {"tensor_parallel_size": 4})),
    Case("GF305", "warning", "no P2P", served(cards(2, (8, 6), "PHB", p2p_read={"0-1": "CNS"}), PLAIN, ON)),
    Case("GF308", "error", "expandable_segments:False", served(cards(2, (8, 6), "NV4"), PLAIN, {}, SEGMENTS)),
    Case("GF311", "error", "needs 4 GPUs of one kind, 2", served(cards(), PLAIN, OFF, {"tensor_parallel_size": 4})),
    Case("GF312", "error", "no stack", plan(gpu_facts((6, 1)), {"stack": None})),
    Case("GF313", "error", "24 heads", served(cards(5), PLAIN, OFF, {"tensor_parallel_size": 5}, **shaped())),
    Case("GF313", "error", "1, 2, 4, 8, 12", served(cards(3), PLAIN, OFF, {"tensor_parallel_size": 3}, **shaped())),
    Case("GF314", "warning", "(0, 2) and (1, 3)", served(PAIRS, PLAIN, OFF, FOUR)),
    Case("GF314", "warning", "to 4", served(lab("octo-v100-dgx1"), PLAIN, OFF, {"tensor_parallel_size": 8})),
    Case("GF314", "info", "do not hold", served(PAIRS, PLAIN, OFF, FOUR, **HUGE)),
    Case("GF314", "info", "at any length", served(PAIRS, PLAIN, OFF, FOUR, **shaped(weights_mib=90000))),
    Case("GF314", "info", "a shorter max-model-len", served(PAIRS, PLAIN, OFF, FOUR, **shaped(weights_mib=35000))),
    Case("GF315", "warning", "GPU 1 12288 MiB", unequal()),
    Case("GF315", "info", "nothing has to be done", unequal(22516)),
    Case("GF316", "error", "'0,1'", served(cards(), PLAIN, {**OFF, "device-ids": "2,3"})),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_it_is_found(case: Case) -> None:
    assert_fires(case)


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("GF301", expecting(4, cards(2, (8, 6), "NV4"))),
        ("GF301", expecting(0, cards(link="PHB"))),
        ("GF301", expecting(2, lab("octo-v100-dgx1"))),
        ("GF301", expecting(6, lab("octo-v100-dgx1"))),
        ("GF301", served(up([True, True]), PLAIN, OFF)),
        ("GF301", served(up([False, False]), PLAIN, OFF)),
        ("GF301", served(up([True, False], (7, 0)), PLAIN, OFF)),
        ("GF301", served(up([True, False]), PLAIN, OFF, {"expect": {"nvlink": 1}})),
        ("GF302", expecting(4, cards(2, (8, 6), "NV4"))),
        ("GF303", pair(link="PHB", p2p_read={"0-1": "OK"}, p2p_write={"0-1": "OK"})),
        ("GF303", pair(link="PHB", p2p_read={"0-1": "OK"})),
        ("GF303", pair(link="PHB", p2p_read={"0-1": "CNS"}, p2p_write={"0-1": "CNS"})),
        ("GF304", pair(iommu=TRANSLATING)),
        ("GF304", pair(link="PHB", iommu={**TRANSLATING, "passthrough": None})),
        ("GF304", pair(link="PHB", iommu=TRANSLATING, p2p_read={"0-1": "CNS"})),
        ("GF304", served(cards(1, (8, 6), iommu=TRANSLATING), PLAIN)),
        ("GF306", pair(link="PHB", iommu={**REDIRECTING, "acs": None})),
        ("GF307", pair(link="PHB", p2p_read={"0-1": "OK"})),
        ("GF307", served(cards(), TURING)),
        ("GF309", pair(p2p_read={"0-1": "OK"})),
        ("GF309", pair()),
        ("GF309", pair(link="PHB", p2p_read={"0-1": "CNS"})),
        ("GF309", quad("SYS", 2, p0_1="NV4", p2_3="NV4", p2p_read={"0-1": "OK", "2-3": "OK", "1-2": "CNS"})),
        ("GF305", served(cards(2, (8, 6), "NV4"), PLAIN, OFF)),
        ("GF305", served(cards(1, (8, 6)), PLAIN)),
        ("GF305", served(cards(4, (7, 0), "NV2"), PLAIN)),
        ("GF308", served(cards(2, (8, 6), "NV4"), PLAIN, OFF, SEGMENTS)),
        ("GF308", served(cards(2, (8, 6), "NV4"), PLAIN, {"enforce-eager": True}, SEGMENTS)),
        ("GF313", served(cards(8), PLAIN, OFF, {"tensor_parallel_size": 8}, **shaped())),
        ("GF314", served(lab("quad-3090-two-pairs"), PLAIN, OFF, TWO)),
        ("GF314", served(lab("dual-3090-sys"), PLAIN, OFF, TWO)),
        ("GF314", served(lab("octo-v100-dgx1"), PLAIN, OFF, {"tensor_parallel_size": 4})),
        ("GF316", served(cards(), PLAIN, {**OFF, "device-ids": "0,1"})),
    ],
)  # fmt: skip
def test_what_is_in_order_is_not(rule: str, found: BoxPlan) -> None:
    assert said(found, rule) == []
