"""The lines that stacks promise and forbid: conditions, and that they are found in what the engines really write."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpufleet import catalogue
from gpufleet.errors import ConfigError
from gpufleet.log_lines import Log, LogLine, When
from gpufleet.paths import stack_folders
from gpufleet.schema import read
from gpufleet.stacks import Stack

# As the wheels, the forks' sources and the patches write them (logger calls with their values put in).
VLLM = [
    "INFO 11-30 02:00:00 [kv_cache_utils.py:2235] GPU KV cache size: 207,692 tokens",
    "WARNING 11-30 02:00:00 [envs.py:2128] Unknown vLLM environment variable detected: VLLM_NO_SUCH",
    "WARNING 11-30 02:00:00 [vllm.py:1914] Truncating max_cudagraph_capture_size to 8",
    "WARNING 11-30 02:00:00 [vllm.py:1929] cudagraph_capture_sizes specified in compilation_config [4, 8, 9000] is "
    "overridden by config [4, 8]",
]
TRITON = [
    "GDN prefill backend 'flashinfer' is selected but cannot use this kernel on the current platform. Falling back to "
    "Triton/FLA.",
    "INFO 11-30 02:00:00 Using Triton/FLA GDN prefill kernel (requested=flashqla_legacy, head_k_dim=128).",
]
FLASHINFER = [
    "Using FLASHINFER attention backend out of potential backends: ['FLASHINFER', 'TRITON_ATTN', 'FLEX_ATTENTION'].",
    "Using AttentionBackendEnum.FLASHINFER backend.",
]
ATTENTION = ["Using TRITON_ATTN attention backend out of potential backends: ['TRITON_ATTN', 'FLEX_ATTENTION']."]
PATCHES = [
    "Using FlashQLA (flashqla_legacy) GDN prefill kernel (requested=flashqla_legacy, head_k_dim=128).",
    "Speculative decoding waits for streams (VLLM_SM75_SPEC_SYNC_MODE=safe, kv_cache_dtype=fp8_e4m3, device=cuda, "
    "speculative tokens=3).",
]
DRAFT = [
    "VLLM_QWOPUS_MTP_BF16_DRAFT is on: target quantization auto_awq, MTP draft built without it.",
    "MTP draft as built: fc UnquantizedLinearMethod, decoder layers UnquantizedLinearMethod.",
]
SM75 = [*VLLM, *FLASHINFER, *PATCHES, *DRAFT, *TRITON, *ATTENTION]
WRITTEN = {
    "vllm-0.27.1-sm75": SM75,
    "vllm-0.27.1-sm75-source": SM75,
    "vllm-0.24.0-sm75": SM75,
    "vllm-0.27.1-sm75-zyyuc": [
        *VLLM,
        *FLASHINFER,
        *TRITON,
        *ATTENTION,
        "Using FlashQLA legacy (SM70/SM75) GDN prefill kernel (requested=flashqla_legacy, head_k_dim=128).",
        "VLLM_QWOPUS_MTP_BF16_DRAFT=1: loading Qwen3.5 MTP draft fc without the target quantization config when "
        "needed; draft layer quantization=awq",
    ],
    "vllm-0.27.1-cpu": [*VLLM, *DRAFT],
    "vllm-0.27.1": [*VLLM, *FLASHINFER, *TRITON],
    "vllm-0.33.0": [
        "GPU KV cache size: 207,692 tokens, Maximum concurrency for 100,000 tokens per request: 2.08x",
        *VLLM[1:],
        *TRITON,
    ],
    "1cat-vllm-1.3.0-sm70": [
        *VLLM,
        "Using AttentionBackendEnum.FLASH_ATTN_V100 backend.",
        "FLASH_ATTN_V100 backend selected, but optional module 'flash_attn_v100' is unavailable. Falling back to "
        "Triton attention paths.",
    ],
    "lmdeploy-0.18.0": ["Fallback to pytorch engine because turbomind is not built."],
}
# What is written where all is well and must trouble nobody.
HARMLESS = [
    "FlashInfer top-p/top-k sampling unavailable: compute capability 7.5 uses it only with "
    "VLLM_USE_FLASHINFER_SAMPLER=1; falling back.",
    "Using Triton/FLA GDN prefill kernel (requested=auto, head_k_dim=128).",
    "DeepGemm kernels are not available. This is not an error and we will fall back to triton.",
    "Maximum concurrency for 100,000 tokens per request: 2.08x",
]
STACKS = catalogue.load(Stack, "stack", stack_folders())


def test_every_stack_is_here() -> None:
    assert set(WRITTEN) == set(STACKS)


@pytest.mark.parametrize("name", WRITTEN)
def test_each_line_of_a_page_is_one_that_its_engine_writes(name: str) -> None:
    log = STACKS[name].log
    for item in [*log.promised, *log.forbidden]:
        assert [line for line in WRITTEN[name] if re.search(item.line, line)], item.line


@pytest.mark.parametrize("name", WRITTEN)
def test_each_line_that_an_engine_writes_is_looked_for(name: str) -> None:
    log = STACKS[name].log
    for line in WRITTEN[name]:
        assert [item for item in [*log.promised, *log.forbidden] if re.search(item.line, line)], line


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_harmless_is_neither(name: str, line: str) -> None:
    log = STACKS[name].log
    assert [item.line for item in [*log.promised, *log.forbidden] if re.search(item.line, line)] == []


ARGS = {"kv-cache-dtype": "fp8_e4m3", "speculative-config": {"method": "mtp", "num_speculative_tokens": 3}, "n": 1}
ENV = {"A": "1"}


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({}, True),
        ({"args": {"kv-cache-dtype": "fp8_e4m3"}}, True),
        ({"args": {"kv-cache-dtype": "fp8"}}, False),
        ({"args": {"no-such": None}}, False),
        ({"args": {"speculative-config": {}}}, True),
        ({"args": {"speculative-config": {"method": "mtp"}}}, True),
        ({"args": {"speculative-config": {"method": "ngram"}}}, False),
        ({"args": {"kv-cache-dtype": {}}}, False),
        ({"args": {"n": True}}, False),
        ({"env": {"A": "1"}}, True),
        ({"env": {"A": "0"}}, False),
        ({"env": {"B": "1"}}, False),
        ({"traits": ["sm86", "sm75"]}, True),
        ({"traits": ["sm86"]}, False),
        ({"families": ["qwen3_5"]}, True),
        ({"families": ["llama"]}, False),
        ({"env": {"A": "1"}, "families": ["llama"]}, False),
    ],
)
def test_when_a_line_counts(when: dict[str, Any], holds: bool) -> None:
    condition = read(When, when, "x")
    assert condition.holds(ARGS, ENV, ["sm75", "nvlink"], "qwen3_5") is holds
    line = LogLine(line="a", means="b", when=[condition])
    assert line.holds(ARGS, ENV, ["sm75"], "qwen3_5") is holds
    assert LogLine(line="a", means="b", unless=[condition]).holds(ARGS, ENV, ["sm75"], "qwen3_5") is not holds


def test_one_of_several_conditions_is_enough() -> None:
    line = LogLine(line="a", means="b", when=[When(env={"A": "0"}), When(env={"A": "1"})])
    assert line.holds({}, {"A": "1"}, [], None) and not line.holds({}, {"A": "2"}, [], None)


def test_a_model_of_no_family_is_in_none() -> None:
    assert not When(families=["qwen3_5"]).holds({}, {}, [], None)


@pytest.mark.parametrize(("line", "said"), [("a(", "no regular expression"), ("", "1 to 300"), ("a\nb", "one line")])
def test_a_line_that_cannot_be_looked_for_is_refused(line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(Log, {"promised": [{"line": line, "means": "b"}]}, "stacks/x.yaml")
