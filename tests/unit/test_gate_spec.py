"""What a plan asks of an instance before it counts as serving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpufleet import catalogue, planning, scenario
from gpufleet.errors import ConfigError
from gpufleet.gate_spec import gate_spec
from gpufleet.instance import Instance
from gpufleet.paths import model_folders, stack_folders
from gpufleet.render import release
from gpufleet.schema import read
from gpufleet.settings import Settings
from gpufleet.stacks import Stack
from tests.unit.fleets import cpu_facts, gpu_facts, model, plan, stack

TOPOLOGIES = Path(__file__).resolve().parents[2] / "lab" / "topologies"
ARCHITECTURE = {
    "family": "qwen3_5", "layers": {"full_attention": 2}, "hidden_size": 64, "intermediate_size": 64, "heads": 2,
    "kv_heads": 1, "head_dim": 32, "vocab_size": 512, "max_positions": 4096, "weights_mib": 10, "vision_mib": 5,
}  # fmt: skip
GPU_STACK = {"arch": ["sm75"], "args": {}}


def instance(
    facts: dict[str, Any] | None = None, data: dict[str, Any] | None = None, *, page: Any = None, **more: Any
) -> Instance:
    engine = stack(**(page or {}))
    (found,) = plan(facts or cpu_facts(), data, stacks=[engine], models=[model(**more)]).instances
    return found


def spec(*arguments: Any, **more: Any) -> dict[str, Any]:
    return gate_spec(instance(*arguments, **more))


def shipped(topology: str, name: str, *sets: str) -> dict[str, Any]:
    path = TOPOLOGIES / f"{topology}.json"
    (found,) = planning.of_topology(scenario.page(path), str(path), planning.overrides(list(sets), [name]))
    return gate_spec(found.plan.instances[0])


def says(found: dict[str, Any], key: str = "promised") -> str:
    return "\n".join(item["line"] for item in found["log"][key])


def test_a_box_without_gpu() -> None:
    found = spec()
    assert found == json.loads(json.dumps(found)), "it goes to the box as JSON"
    assert found == {
        "host": "127.0.0.1", "model": "tiny", "prompt": "What is 17 + 25? Answer with the number only.",
        "max_tokens": 512, "expect": {"deterministic": False}, "timeout": 1800, "speculative": {"accepted": False},
        "context": {"tokens": 512}, "tools": False, "images": False, "log": {"promised": [], "forbidden": []},
        "uuids": [], "bus_ids": [], "speed": None,
    }  # fmt: skip


def test_cards_are_named_for_what_the_kernel_says_of_them() -> None:
    found = spec(gpu_facts(), page=GPU_STACK, tensor_parallel_size=2)
    assert (found["uuids"], found["bus_ids"]) == (["GPU-0", "GPU-1"], ["00000000:01:00.0", "00000000:02:00.0"])


@pytest.mark.parametrize(
    ("host", "asked"), [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("192.168.1.11", "192.168.1.11")]
)
def test_it_is_asked_where_it_listens(host: str, asked: str) -> None:
    assert spec(data={"serve_args": {"host": host}})["host"] == asked


def test_the_first_of_several_served_names_is_asked_for() -> None:
    assert spec(data={"serve_args": {"served-model-name": ["one", "two"]}})["model"] == "one"


@pytest.mark.parametrize(
    ("args", "setting", "own", "tokens"),
    [
        ({"max-model-len": 200_000}, None, None, 16384),
        ({"max-model-len": 200_000}, 100_000, None, 100_000),
        ({"max-model-len": 4096}, None, None, 4096),
        ({"max-model-len": "200k"}, None, None, 16384),
        ({"max-model-len": -1}, None, None, 16384),
        ({"max-model-len": 4096}, None, 1024, 1024),
        ({"max-model-len": 4096}, 0, None, None),
        ({"max-model-len": 4096}, None, 0, None),
    ],
)
def test_the_long_prompt(args: dict[str, Any], setting: int | None, own: int | None, tokens: int | None) -> None:
    rollout = {"rollout": {"gate_context": setting}} if setting is not None else {}
    found = spec(data={"serve_args": args, **rollout}, gate={"context_tokens": own})
    assert found["context"] == ({"tokens": tokens} if tokens else None)


def test_without_a_flag_the_long_prompt_keeps_to_what_the_model_was_made_for() -> None:
    """LMDeploy does not tell its limit, and refuses what is longer."""
    assert spec(architecture=ARCHITECTURE, args={})["context"] == {"tokens": 4096}


@pytest.mark.parametrize(
    ("args", "own", "asked"),
    [
        ({"tool-call-parser": "hermes", "enable-auto-tool-choice": True}, None, True),
        ({"tool-call-parser": "hermes"}, None, False),
        ({"enable-auto-tool-choice": True}, None, False),
        ({"tool-call-parser": "hermes", "enable-auto-tool-choice": True}, False, False),
        ({}, True, True),
    ],
)
def test_a_tool_call_is_asked_where_a_parser_is_set(args: dict[str, Any], own: bool | None, asked: bool) -> None:
    assert spec(args=args, gate={"tools": own})["tools"] is asked


@pytest.mark.parametrize(
    ("args", "architecture", "own", "asked"),
    [
        ({}, ARCHITECTURE, None, True),
        ({"language-model-only": True}, ARCHITECTURE, None, False),
        ({"limit-mm-per-prompt": {"image": 0}}, ARCHITECTURE, None, False),
        ({}, {**ARCHITECTURE, "vision_mib": 0}, None, False),
        ({}, None, None, False),
        ({}, None, True, True),
        ({}, ARCHITECTURE, False, False),
    ],
)
def test_an_image_is_asked_where_images_are_served(
    args: dict[str, Any], architecture: Any, own: bool | None, asked: bool
) -> None:
    assert spec(args=args, architecture=architecture, gate={"images": own})["images"] is asked


def test_speculation_that_is_not_counted_cannot_be_proven() -> None:
    assert spec(gate={"accepted": True})["speculative"] == {"accepted": True}
    assert spec(data={"serve_args": {"speculative-config": None}})["speculative"] is None
    assert spec(data={"serve_args": {"disable-log-stats": True}})["speculative"] is None


@pytest.mark.parametrize(
    ("gpus", "floor", "wanted"), [(True, None, 0.5), (True, 0, 0), (True, 1, 1), (False, None, None), (False, 0.3, 0.3)]
)
def test_the_floor_of_its_speed(gpus: bool, floor: float | None, wanted: float | None) -> None:
    data = {} if floor is None else {"rollout": {"speed_floor": floor}}
    found = spec(gpu_facts(), data, page=GPU_STACK) if gpus else spec(cpu_facts(), data)
    assert (found["speed"] or {}).get("floor") == wanted


@pytest.mark.parametrize("value", [-0.1, 1.1, True, "half"])
def test_a_floor_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.speed_floor"):
        read(Settings, {"rollout": {"speed_floor": value}}, "x.py")


def test_the_published_figure_is_that_of_the_strongest_trait() -> None:
    figures = {"sm75": 10.0, "sm75_nvlink": 84.5, "sm86": 130.0}
    found = spec(gpu_facts(), page=GPU_STACK, gate={"tokens_per_second": figures}, tensor_parallel_size=2)
    assert found["speed"]["published"] == 84.5
    assert spec(gpu_facts((8, 6)), page={**GPU_STACK, "arch": ["sm86"]})["speed"]["published"] is None


@pytest.mark.parametrize(
    "env", [{"VLLM_LOGGING_LEVEL": "WARNING"}, {"VLLM_CONFIGURE_LOGGING": "0"}, {"VLLM_LOGGING_CONFIG_PATH": "/x"}]
)
def test_an_engine_that_is_told_to_be_quiet_owes_no_line(env: dict[str, str]) -> None:
    page = {"log": {"promised": [{"line": "a", "means": "b"}], "forbidden": [{"line": "c", "means": "d"}]}}
    found = spec(data={"serve_env": env}, page=page)["log"]
    assert found == {"promised": [], "forbidden": [{"line": "c", "means": "d"}]}
    assert spec(data={"serve_env": {"VLLM_LOGGING_LEVEL": "debug"}}, page=page)["log"]["promised"]


def test_no_variable_goes_to_the_box_in_it() -> None:
    found = spec(data={"serve_env": {"VLLM_API_KEY": "not-to-be-seen"}})
    assert "not-to-be-seen" not in json.dumps(found)


def test_box_a_owes_the_lines_of_its_patches() -> None:
    found = shipped("dual-2080ti-pcie", "qwen3.8-27b-awq")
    for line in ("KV cache size", "FLASHINFER", "FlashQLA", "VLLM_QWOPUS_MTP_BF16_DRAFT is on", "MTP draft as built"):
        assert line in says(found)
    assert "Unknown vLLM environment variable" in says(found, "forbidden")
    assert (found["speculative"], found["tools"], found["images"]) == ({"accepted": True}, True, False)
    assert found["speed"]["published"] == 36 and found["context"] == {"tokens": 16384}


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ('serve_args={"additional-config": null}', "FlashQLA"),
        ('serve_args={"kv-cache-dtype": "auto"}', "FLASHINFER"),
        ('serve_args={"speculative-config": null}', "MTP draft"),
        ('serve_args={"speculative-config": {"method": "ngram"}}', "MTP draft"),
        ('serve_env={"VLLM_QWOPUS_MTP_BF16_DRAFT": "0"}', "MTP draft"),
    ],
)
def test_what_is_switched_off_is_not_owed(change: str, gone: str) -> None:
    assert gone in says(shipped("dual-2080ti-pcie", "qwen3.8-27b-awq"))
    assert gone not in says(shipped("dual-2080ti-pcie", "qwen3.8-27b-awq", change))


def test_box_b_waits_for_streams_and_serves_images() -> None:
    found = shipped("dual-2080ti-nv2", "qwen3.6-27b-dsv4pro-fp8", "stack=vllm-0.24.0-sm75")
    assert "Speculative decoding waits for streams" in says(found)
    assert (found["images"], found["speed"]["published"]) == (True, 84.5)


def test_lmdeploy_owes_nothing_and_may_not_fall_back() -> None:
    found = shipped("dual-2080ti-nv2", "qwen3.8-27b-awq", "stack=lmdeploy-0.18.0")
    assert (says(found), found["speculative"], found["tools"]) == ("", None, True)
    assert "Fallback to pytorch" in says(found, "forbidden")


def test_another_gate_is_no_other_release_and_another_log_no_other_runtime() -> None:
    before = instance()
    other = {"prompt": "?", "context_tokens": 9, "tools": True, "images": True, "accepted": True}
    log = {"promised": [{"line": "a", "means": "b"}]}
    after = instance(data={"rollout": {"gate_context": 0, "speed_floor": 1}}, page={"log": log}, gate=other)
    assert gate_spec(before) != gate_spec(after)
    assert release(before).digest == release(after).digest and before.runtime.name == after.runtime.name


def test_every_stack_of_vllm_promises_its_kv_cache_and_every_stack_forbids_something() -> None:
    for found in catalogue.load(Stack, "stack", stack_folders()).values():
        assert found.log.forbidden, found.name
        kv = [item for item in found.log.promised if "KV cache size" in item.line and not item.when]
        assert bool(kv) == (found.engine == "vllm"), found.name


def test_figures_of_models_are_for_traits_of_their_boxes() -> None:
    from gpufleet.models import Model

    figures = {
        name: found.gate.tokens_per_second
        for name, found in catalogue.load(Model, "model", model_folders()).items()
        if found.gate.tokens_per_second
    }
    assert figures == {
        "qwen3.8-27b-awq": {"sm75_pcie": 36.0},
        "ornith-1.5-35b-awq": {"sm75_pcie": 50.0},
        "qwen3.6-27b-dsv4pro-fp8": {"sm75_nvlink": 84.5},
        "qwen3.8-27b-awq-mtp": {"sm86_nvlink": 130.0},
    }
