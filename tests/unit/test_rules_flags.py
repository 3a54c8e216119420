"""Rules about flags and variables: how they are written, and what an engine knows."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet.layers import Layer
from gpufleet.plan import BoxPlan
from gpufleet.stacks import Stack
from tests.unit.findings import Case, assert_fires, cards, engine, identify, said, served
from tests.unit.fleets import cpu_facts, model, plan, stack

KNOWN = engine("sm75", flags="vllm-0.27.1", args={"dtype": "half"})
PATCHED = engine(
    "sm75", flags="vllm-0.27.1", provides=["flashqla", "mtp-bf16-draft", "spec-sync-mode", "thinking-budget"]
)
V24 = engine("sm75", flags="vllm-0.24.0")
IDS = engine("sm75", flags="vllm-0.27.1", device_ids=True)
FORK = engine("sm75", flags="vllm-0.27.1", more_flags=["of-a-fork"], more_env=["VLLM_X"])
LMDEPLOY = stack("lmdeploy-0.18.0", engine="lmdeploy", arch=["sm75"], flags="lmdeploy-0.18.0", args={})
FLASHQLA = {"additional-config": {"gdn_prefill_backend": "flashqla_legacy"}}
BUDGET = {"reasoning-config": {"default_thinking_token_budget": 4000}}
WRONG_KEY = {"speculative-config": {"num_speculative_token": 2}}
MINUS_ONE = {"speculative-config": {"num_speculative_tokens": -1}}
ON_SEVERAL = [{"model": "tiny"}, {"model": "other", "args": {"served-model-name": "tiny"}}]


def flags(args: dict[str, Any], by: Stack = KNOWN) -> BoxPlan:
    return served(cards(), by, {"disable-custom-all-reduce": True, **args})


def drafted(tokens: Any) -> dict[str, Any]:
    return {"speculative-config": {"method": "mtp", "num_speculative_tokens": tokens}}


def variables(by: Stack = KNOWN, **env: str) -> BoxPlan:
    return served(cards(), by, {"disable-custom-all-reduce": True}, {"serve_env": env})


def entry(args: dict[str, Any]) -> BoxPlan:
    return served(cards(), KNOWN, None, {"serve": [{"model": "tiny", "args": args}]})


def named(args: dict[str, Any], by: Stack = KNOWN) -> BoxPlan:
    return served(cards(), by, args, aliases=["qwen"])


PREFIX = ("enable-prefix-caching", "no-enable-prefix-caching")
V2 = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
ALIKE = plan(cpu_facts(), {"serve": ["tiny", "other"]}, models=[model(), model("other", served_name="tiny")])
TWO_MODELS = plan(cpu_facts(), {"serve": ON_SEVERAL}, models=[model(), model("other")])

CASES = [
    Case("GF501", "error", "setting port", flags({"port": 1})),
    Case("GF501", "error", "serve entry sets tensor-parallel-size", entry({"tensor-parallel-size": 2})),
    Case("GF501", "error", "tensor-parallel-size", plan(cpu_facts(), {"serve_args": {"tensor-parallel-size": 2}})),
    Case("GF501", "error", "tp", served(cards(), LMDEPLOY, {"tp": 2})),
    Case("GF501", "error", "sets model", flags({"model": "/srv/x"})),
    Case("GF506", "warning", '"attention-backend": "TRITON_ATTN"', variables(VLLM_ATTENTION_BACKEND="TRITON_ATTN")),
    Case("GF501", "warning", "CUDA_VISIBLE_DEVICES", variables(CUDA_VISIBLE_DEVICES="0")),
    Case("GF501", "warning", "take device-ids out", flags({"device-ids": "2,3"}, IDS)),
    Case("GF502", "error", "HF_TOKEN", variables(HF_TOKEN="x")),
    Case("GF502", "error", "api-key", flags({"api-key": "x"})),
    Case("GF503", "error", "no-enable-prefix-caching", flags(dict.fromkeys(PREFIX, True))),
    Case("GF504", "error", "without quotes", flags({"async-scheduling": "false"})),
    Case("GF504", "error", "read as a flag", flags({"chat-template": "-x"})),
    Case("GF505", "error", "write 'max-model-len'", flags({"max-modellen": 512})),
    Case("GF505", "error", "known to vllm-0.27.1", flags({"enable-fault-tolerance": True}, V24)),
    Case("GF506", "warning", "VLLM_USE_FLASHINFER_SAMPLER", variables(VLLM_USE_FLASHINFER_SAMPLR="0")),
    Case("GF506", "warning", "VLLM_ATTENTION_BACKEND", variables(VLLM_ATTENTION_BACKEND="FLASHINFER")),
    Case("GF507", "error", "without tool-call-parser", flags({"enable-auto-tool-choice": True})),
    Case("GF507", "warning", "enable-auto-tool-choice", flags({"tool-call-parser": "qwen3_xml"})),
    Case("GF508", "warning", "both served as tiny", TWO_MODELS),
    Case("GF508", "warning", 'serve = [{"model": "other", "args": {"served-model-name": "other"}}', ALIKE),
    Case("GF517", "info", "its page says tiny", flags({"served-model-name": "gpt-4"})),
    Case("GF517", "info", "answers to tiny, its page says tiny and qwen", named({"served-model-name": "tiny"})),
    Case("GF517", "info", "let clients ask for tiny", named({}, LMDEPLOY)),
    Case("GF509", "warning", "PYTHONPATH", variables(PYTHONPATH="/home/me/vllm")),
    Case("GF509", "warning", "stubs", variables(LD_LIBRARY_PATH="/usr/local/cuda/lib64/stubs")),
    Case("GF509", "warning", "conda", variables(PATH="/home/me/conda/bin:/usr/bin")),
    Case("GF510", "warning", "TRITON_CACHE_DIR", variables(TRITON_CACHE_DIR="/tmp/triton")),
    Case("GF511", "warning", "Triton would be used", flags(FLASHQLA)),
    Case("GF512", "warning", "spec-sync-mode", variables(VLLM_SM75_SPEC_SYNC_MODE="safe")),
    Case("GF513", "error", "does not know", flags(BUDGET)),
    Case("GF513", "error", "V2 model runner", served(cards(), PATCHED, BUDGET, {"serve_env": V2})),
    Case("GF514", "error", "use one of", flags({"chat-template-content-format": "text"})),
    Case("GF515", "error", "has no opposite", flags({"aggregate-engine-logging": False})),
    Case("GF549", "error", "enforce-eager is \"yes\"", flags({"enforce-eager": "yes"})),
    Case("GF549", "error", "enforce-eager is 1", flags({"enforce-eager": 1})),
    Case("GF549", "error", "speculative-config is \"mtp\"", flags({"speculative-config": "mtp"})),
    Case("GF549", "error", "config.num_speculative_tokens is \"x\"", flags(drafted("x"))),
    Case("GF549", "error", "give num_speculative_tokens a whole number", flags(drafted(True))),
    Case("GF549", "error", "compilation-config is 3", flags({"compilation-config": 3})),
    Case("GF549", "error", "max-model-len is true", flags({"max-model-len": True})),
    Case("GF549", "error", "max-model-len is [1]", flags({"max-model-len": [1]})),
    Case("GF549", "error", "0.9", flags({"gpu-memory-utilization": "90%"})),
    Case("GF528", "error", "did you mean 'num_speculative_tokens'", flags(WRONG_KEY)),
    Case("GF528", "error", "mpt is no method", flags({"speculative-config": {"method": "mpt"}})),
    Case("GF548", "error", "max-model-len is 32 k", flags({"max-model-len": "32 k"})),
    Case("GF548", "error", "max-num-seqs is two", flags({"max-num-seqs": "two"})),
    Case("GF548", "error", "max-num-seqs is -5", flags({"max-num-seqs": -5})),
    Case("GF548", "error", "max-model-len is 0", flags({"max-model-len": 0})),
    Case("GF548", "error", "block-size is 1.5", flags({"block-size": 1.5})),
    Case("GF548", "error", "session-len is -2", served(cards(), LMDEPLOY, {"session-len": -2})),
    Case("GF548", "error", "num_speculative_tokens is -1", flags(MINUS_ONE)),
    Case("GF527", "warning", "max-model-len (inventory/x.py)", flags({"max-model-len": 8192}, LMDEPLOY)),
    Case("GF527", "warning", "VLLM_USE_DEEP_GEMM", variables(LMDEPLOY, VLLM_USE_DEEP_GEMM="0")),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_it_is_found(case: Case) -> None:
    assert_fires(case)


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("GF501", flags({})),
        ("GF501", plan(cpu_facts())),
        ("GF501", served(cards(), LMDEPLOY)),
        ("GF503", flags({"enable-prefix-caching": True, "no-enable-prefix-caching": False})),
        ("GF505", flags({"max-model-len": 512, "no-async-scheduling": True, "max-modellen": None})),
        ("GF505", flags({"of-a-fork": 1}, FORK)),
        ("GF505", served(cards(), engine("sm75"), {"of-an-engine-without-table": 1})),
        ("GF506", variables(VLLM_USE_V2_MODEL_RUNNER="1", OMP_NUM_THREADS="8")),
        ("GF506", variables(FORK, VLLM_X="1")),
        ("GF506", variables(VLLM_SM75_SPEC_SYNC_MODE="safe")),  # GF512 says it
        ("GF507", flags({"enable-auto-tool-choice": True, "tool-call-parser": "qwen3_xml"})),
        ("GF508", flags({})),
        ("GF517", flags({})),
        ("GF517", named({})),
        ("GF509", variables()),
        ("GF509", served(cards(), engine("sm75", env={"PYTHONPATH": "/opt/flashqla"}))),
        ("GF510", variables()),
        ("GF511", flags(FLASHQLA, PATCHED)),
        ("GF512", variables(PATCHED, VLLM_SM75_SPEC_SYNC_MODE="safe", VLLM_QWOPUS_MTP_BF16_DRAFT="1")),
        ("GF513", flags(BUDGET, PATCHED)),
        ("GF514", flags({"chat-template-content-format": "string"})),
        ("GF515", flags({"async-scheduling": False, "aggregate-engine-logging": True})),
        ("GF549", flags({"enforce-eager": False, "max-model-len": "200k", "allowed-origins": ["*"], "seed": 1})),
        ("GF520", flags(drafted("x"))),  # GF549 says it
        ("GF549", flags(drafted(2))),
        ("GF549", flags({"speculative-config": '{"method": "mtp"}', "served-model-name": ["a", "b"]})),
        ("GF528", flags({"speculative-config": {"method": "qwen3_5_mtp", "num_speculative_tokens": 1}})),
        ("GF548", flags({"max-model-len": -1, "max-num-seqs": 1, "block-size": 16})),
        ("GF548", flags({"max-model-len": "200k", "max-num-seqs": None})),
        ("GF527", served(cards(), LMDEPLOY, {"session-len": 8192})),
        ("GF527", served(cards(), LMDEPLOY, {"of-no-engine": 1})),  # GF505 says it
    ],
)  # fmt: skip
def test_what_is_in_order_is_not(rule: str, found: BoxPlan) -> None:
    assert said(found, rule) == []


def test_an_unknown_flag_is_named_with_the_layer_it_came_from() -> None:
    layers = {"sm75": [Layer("group_data/sm75.py", {"serve_args": {"max-modellen": 512}})]}
    found = plan(cards(), {"stack": KNOWN.name}, stacks=[KNOWN], layers=layers)
    assert "group_data/sm75.py" in said(found, "unknown-flag")[0].message
