"""lmdeploy's flags as vLLM's: approximate, so the tests say what is taken for what."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet import kv
from gpufleet.memory import estimate
from gpufleet.memory_lmdeploy import as_vllm
from tests.unit.architectures import AWQ_27B, QWEN_06B


def translated(**args: Any) -> dict[str, Any]:
    return as_vllm(AWQ_27B, 32768, 2, {name.replace("_", "-"): value for name, value in args.items()})


def test_names() -> None:
    found = translated(session_len=65536, max_batch_size=4, max_prefill_token_num=2048, enable_prefix_caching=True)
    assert found["max-model-len"] == 65536
    assert found["max-num-seqs"] == 4
    assert found["max-num-batched-tokens"] == 2048
    assert found["enable-prefix-caching"] is True
    assert found["enforce-eager"] is True


def test_defaults() -> None:
    found = translated()
    assert (found["max-model-len"], found["max-num-seqs"]) == (262144, 128)
    assert (found["max-num-batched-tokens"], found["block-size"]) == (8192, 64)
    assert (found["kv-cache-dtype"], found["enable-prefix-caching"]) == ("auto", False)


@pytest.mark.parametrize(
    ("policy", "kind"),
    [(0, "auto"), (4, "int4_per_token_head"), (8, "int8_per_token_head"), (16, "fp8_e4m3"), (17, "fp8_e5m2")],
)
def test_quantised_caches(policy: int, kind: str) -> None:
    assert translated(quant_policy=policy)["kv-cache-dtype"] == kind


def test_a_policy_that_nobody_knows_counts_as_unquantised() -> None:
    assert translated(quant_policy=99)["kv-cache-dtype"] == "auto"


def test_the_cache_is_a_share_of_what_is_free_after_loading() -> None:
    free = 32768 * (1 - 0.017) - 600 - (18338 + 879) / 2
    assert translated()["kv-cache-memory-bytes"] == pytest.approx(0.8 * free * 2**20, rel=1e-6)
    assert translated(cache_max_entry_count=0.4)["kv-cache-memory-bytes"] == pytest.approx(0.4 * free * 2**20, rel=1e-6)
    text = translated(language_model_only=True)
    assert text["kv-cache-memory-bytes"] == pytest.approx(0.8 * (free + 879 / 2) * 2**20, rel=1e-6)


def test_the_cache_is_that_many_blocks() -> None:
    found = as_vllm(QWEN_06B, 16384, 1, {"cache-max-entry-count": 1000})
    assert found["kv-cache-memory-bytes"] == 1000 * 64 * 28 * kv.token_bytes(QWEN_06B, 1, "auto")
    assert estimate(QWEN_06B, 16384, 1, found).kv_tokens == 64000


def test_a_model_larger_than_the_card_has_no_cache() -> None:
    found = as_vllm(AWQ_27B, 8192, 1, {})
    assert found["kv-cache-memory-bytes"] == 0
    assert not estimate(AWQ_27B, 8192, 1, found).fits


def test_two_v100_of_32_gb_serve_the_27b_model_and_two_of_16_do_not_at_full_length() -> None:
    args = {"tp": 2, "session-len": 262144, "max-batch-size": 4}
    assert estimate(AWQ_27B, 32768, 2, as_vllm(AWQ_27B, 32768, 2, args)).fits
    assert not estimate(AWQ_27B, 16384, 2, as_vllm(AWQ_27B, 16384, 2, args)).fits
