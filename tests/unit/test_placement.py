"""Which cards a serve entry gets where they are of one kind and not of one size, and when there are too few."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpufleet import scenario
from gpufleet.instance import Instance
from gpufleet.planning import of_topology, overrides
from gpufleet.rules import check
from tests.unit.findings import cards, engine, said, served, shaped
from tests.unit.fleets import gpu_facts, model, plan
from tests.unit.topologies import SCENARIOS

TURING = engine("sm75", flags="vllm-0.27.1", provides=["fp8-kv-sm75", "mtp-bf16-draft"])
LONG = {"max-model-len": 100000, "max-num-seqs": 2, "kv-cache-dtype": "fp8_e4m3"}
SMALL = model("small", args={"max-model-len": 4096}, **shaped(weights_mib=1400, mtp=None))
LARGE = model("large", args=LONG, **shaped(mtp=None))


def sized(*sizes: int, link: str = "PHB", **links: str) -> dict[str, Any]:
    """2080 Ti with so many MiB; `p0_1="NV2"` joins the first two."""
    facts = cards(len(sizes), link=link)
    for gpu, mib in zip(facts["gpus"], sizes, strict=True):
        gpu["memory_mib"] = mib
    facts["links"].update({name[1:].replace("_", "-"): word for name, word in links.items()})
    return facts


def placed(facts: dict[str, Any], *serve: str, **data: Any) -> list[Instance]:
    settings = {"stack": TURING.name, "serve": list(serve), **data}
    return plan(facts, settings, stacks=[TURING], models=[SMALL, LARGE]).instances


def test_a_model_goes_on_the_cards_that_hold_it_and_not_across_the_small_ones() -> None:
    facts = sized(22528, 11264, 22528, 11264)
    assert [item.gpus for item in placed(facts, "large")] == [(0, 2)]


def test_a_bridge_to_a_card_that_is_too_small_does_not_count() -> None:
    facts = sized(22528, 11264, 22528, 11264, 22528, 22528, p0_1="NV2", p2_3="NV2")
    assert [item.gpus for item in placed(facts, "large")] == [(0, 2), (4, 5)]
    facts["links"]["2-5"] = "NV2"
    assert [item.gpus for item in placed(facts, "large")] == [(0, 4), (2, 5)]


@pytest.mark.parametrize("links", [{}, {"p0_1": "NV2", "p2_3": "NV2"}, {"p0_1": "NV2"}])
@pytest.mark.parametrize("serve", [("large", "small"), ("small", "large")])
def test_a_small_model_leaves_the_large_cards_to_a_large_one(serve: tuple[str, str], links: dict[str, str]) -> None:
    found = placed(sized(22528, 11264, 22528, 11264, **links), *serve)
    assert {item.model.name: item.gpus for item in found} == {"large": (0, 2), "small": (1,)}


def test_small_cards_are_taken_when_the_owner_asks_for_more_than_the_large_ones_give() -> None:
    found = placed(sized(22528, 11264, 22528, 11264), "large", instances=2)
    assert [item.gpus for item in found] == [(0, 2), (1, 3)]
    assert [bool(item.memory and item.memory.fits) for item in found] == [True, False]


def test_with_too_few_cards_the_first_instances_have_the_best_and_the_last_none() -> None:
    facts = sized(*[22528] * 4, p0_2="NV2", p1_3="NV2")
    assert [item.gpus for item in placed(facts, "large", instances=3)] == [(0, 2), (1, 3), ()]


def test_stacks_that_can_serve_a_card_are_named_where_none_is_its_default() -> None:
    found = plan(gpu_facts((7, 5)), {"stack": None}, stacks=[TURING])
    assert [item.remedy.split(",")[0] for item in found.unplaced] == [f"name one with `stack` ({TURING.name})"]
    found = plan(gpu_facts((6, 0)), {"stack": None}, stacks=[TURING])
    assert "`stack`" not in found.unplaced[0].remedy


@pytest.mark.parametrize(
    ("links", "args", "off"),
    [
        ({}, {}, True),
        ({"p0_1": "NV2", "p2_3": "NV2"}, {}, True),
        ({"link": "NV2"}, {}, None),
        ({}, {"disable-custom-all-reduce": False}, False),
        ({}, {"no-disable-custom-all-reduce": True}, None),
    ],
)
def test_custom_all_reduce_is_off_for_more_than_two_cards_without_a_mesh(
    links: dict[str, str], args: dict[str, Any], off: bool | None
) -> None:
    (found,) = placed(sized(*[22528] * 4, **links), "large", tensor_parallel_size=4, serve_args=args)
    assert found.args.get("disable-custom-all-reduce") is off


def test_custom_all_reduce_of_two_cards_is_left_to_stack_and_model() -> None:
    (found,) = placed(sized(22528, 22528), "large")
    assert "disable-custom-all-reduce" not in found.args


def test_a_card_without_memory_is_refused_in_words() -> None:
    found = served(sized(1, 1), TURING, None, {"tensor_parallel_size": 2}, **shaped())
    assert {finding.code for finding in check(found)} >= {"GF401", "GF408"}


def test_a_share_beyond_the_card_is_told_once() -> None:
    found = served(sized(22528, 22528), TURING, {"gpu-memory-utilization": 92}, None, **shaped())
    assert [finding.remedy for finding in said(found, "GF407")] == ["set it to 0.92"]
    assert not said(found, "GF408")


def test_lmdeploys_share_is_lowered_to_what_fits() -> None:
    path, settings = SCENARIOS / "dual-2080ti-nv2.json", ["stack=lmdeploy-0.18.0"]

    def found(share: float) -> list[str]:
        given = overrides([*settings, f"serve_args.cache-max-entry-count={share}"], ["qwen3.8-27b-awq"])
        return [
            item.remedy
            for item in of_topology(scenario.page(path), str(path), given)[0].findings
            if item.code == "GF408"
        ]

    (remedy,) = found(0.8)
    assert found(float(remedy.partition(": ")[2].rstrip("}"))) == []
    (plain,) = of_topology(scenario.page(path), str(path), overrides(settings, ["qwen3.8-27b-awq"]))
    assert not plain.refused and [item.gpus for item in plain.plan.instances] == [(0, 1)]


def test_no_toolkit_can_be_asked_for_on_the_command_line() -> None:
    assert overrides(["host.toolkit=none"], [])["host"] == {"toolkit": "none"}
    assert overrides(["serve_args.speculative-config=none"], [])["serve_args"] == {"speculative-config": None}


def test_a_mixture_of_experts_does_not_draft_with_an_engine_that_cannot() -> None:
    given = overrides([], ["ornith-1.5-35b-awq"])
    (published,), (patched,) = (
        of_topology(scenario.page(SCENARIOS / f"{name}.json"), name, given)
        for name in ("dual-3090-nv4", "dual-2080ti-nv2")
    )
    assert "mtp-draft-quantised" not in {item.name for item in published.findings}
    assert published.plan.instances[0].args["speculative-config"] is None
    assert patched.plan.instances[0].args["speculative-config"]["num_speculative_tokens"] == 1


def unlike() -> dict[str, Any]:
    """A 3090 beside two 2080 Ti."""
    facts = cards(3)
    facts["gpus"][1].update({"name": "NVIDIA GeForce RTX 3090", "compute_capability": [8, 6], "memory_mib": 24576})
    return facts


@pytest.mark.parametrize(("count", "groups"), [(1, [(1,)]), (2, [(1,), (0,)]), (3, [(1,), (0,), (2,)])])
def test_instances_that_have_no_room_on_one_kind_of_card_go_to_another(count: int, groups: list[tuple[int]]) -> None:
    both = engine("sm75", "sm86", flags="vllm-0.27.1")
    data = {"stack": both.name, "serve": ["small"], "instances": count}
    found = plan(unlike(), data, stacks=[both], models=[SMALL])
    assert [item.gpus for item in found.instances] == groups
    assert not said(found, "GF311")


def test_instances_beyond_all_cards_are_refused() -> None:
    both = engine("sm75", "sm86", flags="vllm-0.27.1")
    found = plan(unlike(), {"stack": both.name, "serve": ["small"], "instances": 4}, stacks=[both], models=[SMALL])
    assert sorted(item.gpus for item in found.instances) == [(), (0,), (1,), (2,)]
    assert len(said(found, "GF311")) == 1


def test_a_thinking_budget_has_the_model_runner_that_keeps_it() -> None:
    path, name = SCENARIOS / "dual-2080ti-nv2.json", "VLLM_USE_V2_MODEL_RUNNER"

    def found(model: str, *settings: str) -> tuple[str | None, bool]:
        (box,) = of_topology(scenario.page(path), str(path), overrides(settings, [model]))
        return box.plan.instances[0].env.get(name), "thinking-budget" in {item.name for item in box.findings}

    assert found("qwen3.6-27b-dsv4pro-fp8") == ("0", False)
    assert found("qwen3.6-27b-dsv4pro-fp8", "stack=vllm-0.24.0-sm75") == (None, False)
    assert found("qwen3.6-27b-dsv4pro-fp8", f"serve_env.{name}=1") == ("1", True)
    assert found("qwen3.8-27b-awq") == ("1", False)


@pytest.mark.parametrize("length", [120_000, 262_144])
def test_a_smaller_kv_cache_is_a_remedy_with_the_length_that_it_is_enough_for(length: int, tmp_path: Path) -> None:
    page = json.loads((SCENARIOS / "quad-v100-mesh.json").read_text())
    page.update(gpus=page["gpus"][:1], links={})
    page["gpus"][0]["memory_mib"] = 28672
    path = tmp_path / "one.json"
    path.write_text(json.dumps(page))

    def remedies(**args: Any) -> list[str]:
        settings = [f"serve_args.{name}={value}" for name, value in {"max-model-len": length, **args}.items()]
        given = overrides(settings, ["qwen3.8-27b-awq"])
        return [
            item.remedy
            for item in of_topology(scenario.page(path), str(path), given)[0].findings
            if item.code == "GF401"
        ]

    (found,) = remedies()
    (offered,) = [part for part in found.split("; or ") if "kv-cache-dtype" in part]
    right = json.loads(offered.removeprefix("serve_args = "))
    assert right["kv-cache-dtype"] == "fp8_e5m2" and ("max-model-len" in right) == (length == 262_144)
    assert remedies(**right) == []


def test_what_is_needed_is_said_and_not_what_is_left() -> None:
    settings = {"stack": TURING.name, "serve": ["large", "small", {"model": "large", "name": "second"}]}
    found = plan(sized(*[22528] * 4), settings, stacks=[TURING], models=[SMALL, LARGE])
    (finding,) = said(found, "GF311")
    assert finding.message == "second needs 2 GPUs of one kind, 1 is free"
    assert not said(found, "GF401")
