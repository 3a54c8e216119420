"""Rules about speculation, CUDA graphs and number formats."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet.plan import BoxPlan
from gpufleet.stacks import Stack
from tests.unit.findings import MTP, Case, assert_fires, cards, engine, identify, said, served, shaped

SM75 = engine("sm75", provides=["fp8-kv-sm75", "mtp-bf16-draft", "spec-sync-mode"])
STOCK = engine("sm75", "sm86", name="vllm-0.27.1-stock")
OLD = engine("sm75", "sm86", name="vllm-0.23.0-stock")
V24 = engine("sm75", "sm86", name="vllm-0.24.0-stock")
VOLTA = engine("sm70", name="1cat-vllm-1.3.0", provides=["fp8-kv-sm70"])
NO_FP8_VOLTA = engine("sm70", name="a-vllm-for-volta")
SYNC, V2 = {"VLLM_SM75_SPEC_SYNC_MODE": "safe"}, {"VLLM_USE_V2_MODEL_RUNNER": "1"}
BOTH = engine("sm75", provides=["spec-sync-mode"], env=SYNC | V2)


def drafting(
    by: Stack = SM75, draft: dict[str, Any] | None = None, shape: dict[str, Any] | None = None, **more: Any
) -> BoxPlan:
    """A 27 B that speculates; `more` are settings of the box."""
    args = {"speculative-config": {**MTP, **(draft or {})}, "max-model-len": 8192, **more.pop("args", {})}
    return served(cards(), by, args, more, **shaped(**(shape or {})))


def with_head(draft: dict[str, Any] | None, **shape: Any) -> BoxPlan:
    """A model whose page replaces its MTP head."""
    return served(cards(), SM75, {"speculative-config": draft}, None, mtp_head=HEAD, **shaped(**shape))


def captured(sizes: list[int], most: int | None = None, mode: str | None = None, **more: Any) -> BoxPlan:
    config = {"cudagraph_capture_sizes": sizes, "max_cudagraph_capture_size": most, "cudagraph_mode": mode}
    given = {key: value for key, value in config.items() if value is not None}
    return drafting(args={"compilation-config": given}, **{"streams": 3, **more})


def kv(dtype: str, by: Stack, capability: tuple[int, int] = (7, 5), **shape: Any) -> BoxPlan:
    return served(cards(2, capability), by, {"kv-cache-dtype": dtype, "max-model-len": 8192}, **shaped(**shape))


def backend(name: str, by: Stack, capability: tuple[int, int] = (7, 5), kind: str = "auto") -> BoxPlan:
    return served(cards(2, capability), by, {"attention-backend": name, "kv-cache-dtype": kind}, **shaped())


def weights(flag: str, capability: tuple[int, int] = (7, 5), **shape: Any) -> BoxPlan:
    return served(cards(2, capability), STOCK, {"quantization": flag}, **shaped(**shape))


NO_HEAD = {"mtp": None}
HEAD = {"source": {"path": "/srv/models/head"}}
QUANTISED = {"mtp": {"mib": 810, "tensors": 785, "quantised": True}}
TWO_LAYERS = {"mtp": {"mib": 810, "tensors": 15, "layers": 2}}
FULL_ATTENTION: dict[str, Any] = {"layers": {"full_attention": 64}, "linear": None}
PREFIXES = {"enable-prefix-caching": True}
MOE = {"experts": 128, "family": "qwen3_5_moe"}

CASES = [
    Case("GF547", "error", "FLASH_ATTN_V100", backend("FLASHINFER", VOLTA, (7, 0))),
    Case("GF547", "error", "SM75", backend("FLASH_ATTN", SM75)),
    Case("GF547", "error", "SM86", backend("FLASH_ATTN_V100", STOCK, (8, 6))),
    Case("GF547", "error", "fp8_e4m3", backend("TRITON_ATTN", STOCK, (8, 6), "fp8_e4m3")),
    Case("GF516", "warning", "has no effect", drafting(serve_env=SYNC | V2)),
    Case("GF516", "warning", "has no effect", drafting(engine("sm75", env=SYNC), serve_env=V2)),
    Case("GF516", "info", "has no effect", drafting(BOTH)),
    Case("GF518", "error", "V2_MODEL_RUNNER", drafting(V24, args=PREFIXES, serve_env=V2)),
    Case("GF519", "error", "enable-chunked-prefill", drafting(args={**PREFIXES, "enable-chunked-prefill": False})),
    Case("GF520", "warning", "num_speculative_tokens", drafting(draft={"num_speculative_tokens": 0})),
    Case("GF521", "error", "no mtp.* tensors", drafting(shape=NO_HEAD)),
    Case("GF521", "error", "no mtp.* tensors", drafting(draft={"method": "qwen3_5_mtp"}, shape=NO_HEAD)),
    Case("GF521", "warning", "does not count", with_head(MTP, mtp=None)),
    Case("GF522", "warning", "qwen3_next_mtp is not for qwen3_5", drafting(V24, {"method": "qwen3_next_mtp"})),
    Case("GF522", "info", "qwen3_next_mtp", drafting(draft={"method": "qwen3_next_mtp"})),
    Case("GF523", "error", '"num_speculative_tokens": 2', drafting(shape=TWO_LAYERS)),
    Case("GF524", "error", "qwen3_5_text", drafting(shape={"family": "qwen3_5_text"})),
    Case("GF525", "warning", "is off", drafting()),
    Case("GF525", "warning", "mixture of experts", drafting(STOCK, shape=MOE)),
    Case("GF526", "info", "1 of its GPUs", drafting(draft={"draft_tensor_parallel_size": 1}, tensor_parallel_size=2)),
    Case("GF529", "warning", "the replaced MTP head is quantised", with_head(MTP, **QUANTISED)),
    Case("GF529", "info", "is not used", with_head(None)),
    Case("GF529", "info", "is not used", with_head({"method": "ngram", "num_speculative_tokens": 2})),
    Case("GF525", "warning", "is off", with_head(MTP)),
    Case("GF530", "error", "set it to 12", captured([4, 8, 12], 16)),
    Case("GF531", "warning", "3 streams take 12", captured([4, 8])),
    Case("GF532", "warning", "[6] are no multiples of 4", captured([4, 6, 12])),
    Case("GF533", "info", "graphs for 64 tokens", captured([4, 8, 12, 64])),
    Case("GF534", "info", "the default mode", drafting()),
    Case("GF534", "info", "FULL_AND_PIECEWISE", captured([4, 8, 12], mode="FULL_AND_PIECEWISE")),
    Case("GF535", "info", "3 requests at once", drafting(streams=3)),
    Case("GF540", "error", "fp8-kv-sm75", kv("fp8_e4m3", STOCK)),
    Case("GF540", "error", "0.24.0", kv("fp8", V24)),
    Case("GF541", "error", '"fp8_e5m2"', kv("fp8_e4m3", VOLTA, (7, 0))),
    Case("GF541", "error", "no KV cache of fp8", kv("fp8", VOLTA, (7, 0))),
    Case("GF541", "error", "on SM70", kv("fp8_e5m2", NO_FP8_VOLTA, (7, 0))),
    Case("GF541", "error", "FP8 checkpoint", kv("fp8_e5m2", VOLTA, (7, 0), quantization="fp8")),
    Case("GF542", "error", "int8_per_token_head", kv("fp8", STOCK, (8, 6), quantization="compressed-tensors")),
    Case("GF543", "error", "the checkpoint is compressed-tensors", weights("awq", quantization="compressed-tensors")),
    Case("GF543", "error", "the checkpoint is awq", weights("fp8")),
    Case("GF544", "warning", "awq_marlin", weights("awq")),
    Case("GF545", "error", '"half"', served(cards(), STOCK, {"dtype": "bfloat16"})),
    Case("GF546", "error", '"max-model-len": 262144', served(cards(), STOCK, {"max-model-len": 500_000}, **shaped())),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_it_is_found(case: Case) -> None:
    assert_fires(case)


TOLD = {"VLLM_QWOPUS_MTP_BF16_DRAFT": "1"}


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("GF547", backend("TRITON_ATTN", VOLTA, (7, 0))),
        ("GF547", backend("FLASH_ATTN_V100", VOLTA, (7, 0))),
        ("GF547", backend("FLASHINFER", SM75, kind="fp8_e4m3")),
        ("GF547", backend("FLASH_ATTN", STOCK, (8, 6))),
        ("GF547", backend("TRITON_ATTN", STOCK, (8, 6))),
        ("GF516", drafting(serve_env=SYNC)),
        ("GF516", drafting(serve_env=SYNC | {"VLLM_USE_V2_MODEL_RUNNER": "0"})),
        ("GF518", drafting(STOCK, args=PREFIXES, serve_env=V2)),
        ("GF518", drafting(V24, args=PREFIXES)),
        ("GF518", drafting(V24, args=PREFIXES, serve_env=V2, shape=FULL_ATTENTION)),
        ("GF519", drafting(args=PREFIXES)),
        ("GF519", drafting(args={**PREFIXES, "enable-chunked-prefill": False}, shape=FULL_ATTENTION)),
        ("GF520", served(cards(), SM75)),
        ("GF521", drafting()),
        ("GF521", served(cards(), SM75, {"speculative-config": MTP})),
        ("GF521", drafting(draft={"method": "ngram"}, shape=NO_HEAD)),
        ("GF522", drafting(V24, {"method": "qwen3_5_mtp"})),
        ("GF522", drafting(V24, {"method": "mtp"})),
        ("GF523", drafting()),
        ("GF523", drafting(draft={"num_speculative_tokens": 1}, shape=TWO_LAYERS)),
        ("GF525", drafting(serve_env=TOLD)),
        ("GF525", drafting(shape={"quantization": "fp8"})),
        ("GF525", drafting(STOCK)),
        ("GF521", with_head(MTP)),
        ("GF529", with_head(MTP)),
        ("GF529", with_head(MTP, quantization="none", **QUANTISED)),
        ("GF529", drafting(shape=QUANTISED)),
        ("GF525", with_head(MTP, **QUANTISED)),
        ("GF530", captured([4, 8, 12], 12)),
        ("GF530", captured([4, 8, 12])),
        ("GF531", captured([4, 8, 12])),
        ("GF531", captured([4], mode="NONE")),
        ("GF531", drafting(streams=3)),
        ("GF532", captured([4, 8, 12])),
        ("GF532", captured([4, 2050], streams=1)),
        ("GF533", captured([4, 2048], mode="PIECEWISE", streams=1)),
        ("GF534", captured([4, 8, 12], mode="PIECEWISE")),
        ("GF534", drafting(shape=FULL_ATTENTION)),
        ("GF535", drafting(streams=1)),
        ("GF540", kv("fp8_e4m3", SM75)),
        ("GF540", kv("fp8_e4m3", OLD)),
        ("GF540", kv("auto", STOCK)),
        ("GF540", kv("fp8_e4m3", STOCK, (8, 6))),
        ("GF541", kv("fp8_e5m2", VOLTA, (7, 0))),
        ("GF542", kv("fp8", STOCK, (8, 6))),
        ("GF543", weights("awq_marlin")),
        ("GF543", weights("fp8", quantization="none")),
        ("GF543", weights("moe_wna16", experts=128)),
        ("GF543", weights("a-forks-own")),
        ("GF544", weights("awq", experts=128)),
        ("GF544", weights("awq_marlin")),
        ("GF545", served(cards(2, (8, 6)), STOCK, {"dtype": "bfloat16"})),
        ("GF546", served(cards(), STOCK, {"max-model-len": 500_000, "hf-overrides": {"rope_scaling": 1}}, **shaped())),
    ],
)  # fmt: skip
def test_what_is_in_order_is_not(rule: str, found: BoxPlan) -> None:
    assert said(found, rule) == []


def test_flags_that_are_written_as_text_are_read() -> None:
    text = '{"method": "mtp", "num_speculative_tokens": 3}'
    found = served(cards(), SM75, {"speculative-config": text}, **shaped(mtp=None))
    assert said(found, "mtp-without-tensors")


def test_a_text_that_is_no_json_says_nothing() -> None:
    found = served(cards(), SM75, {"speculative-config": "mtp", "compilation-config": "[1, 2"}, **shaped(mtp=None))
    assert said(found, "mtp-without-tensors") == []
