"""The pool's arithmetic: the counts that engines logged, from the blocks or bytes that they logged."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet import kv
from tests.unit.architectures import AWQ_27B, AWQ_122B, FP8_27B, FP8_35B, GPT_OSS_20B, QWEN_06B, QWEN_27B, model

MIB = 1 << 20
GIB = 1 << 30


def pool(architecture: Any = FP8_27B, **options: Any) -> kv.Layout:
    given = {"gpus": 2, "kind": "fp8", "batch": 4096} | options
    return kv.layout(architecture, **given)


def tokens(layout: kv.Layout, blocks: int, length: int) -> int:
    return int(blocks / layout.blocks_of(length) * length)


MTP3 = {"draft_layers": 1, "draft_tokens": 3}
MTP4 = {"draft_layers": 1, "draft_tokens": 4}


def test_box_b_with_fp8() -> None:
    """recipes.md: block size 1600, 162 blocks, concurrency 2.077 at 100 K, 207,692 tokens."""
    layout = pool(**MTP3)
    assert (layout.block, layout.block_bytes) == (1600, 17 * 1_638_400)
    assert (layout.full, layout.linear, layout.states) == (1, 3, 5)
    assert layout.blocks_of(100_000) == 78
    assert round(162 / layout.blocks_of(100_000), 3) == 2.077
    assert tokens(layout, 162, 100_000) == 207_692


def test_box_b_with_fp16() -> None:
    """The same 162 blocks, of half as many tokens: 115,714."""
    layout = pool(kind="auto", **MTP3)
    assert (layout.block, layout.block_bytes) == (800, 17 * 1_638_400)
    assert tokens(layout, 162, 100_000) == 115_714


@pytest.mark.parametrize(
    ("options", "available_gib", "length", "logged"),
    [
        # noonghunna/club-3090 #642, #446; mitchross/talos-argocd-proxmox #1995: GiB and tokens of one log each
        ({**MTP3}, 11.05, 262144, 623_873),
        ({**MTP3, "gpus": 4, "kind": "int8_per_token_head"}, 15.73, 262144, 1_746_661),
        ({}, 4.99, 131072, 302_921),
        # #652 and #612: the 35B model on one card
        ({"architecture": FP8_35B, "gpus": 1}, 6.01, 131072, 569_878),
        ({"architecture": FP8_35B, "gpus": 1}, 5.98, 131072, 567_978),
    ],
)
def test_logged_tokens_from_logged_memory(options: Any, available_gib: float, length: int, logged: int) -> None:
    layout = pool(**options)
    # the log rounds to 0.01 GiB
    counts = {
        tokens(layout, int((available_gib + shift) * GIB // layout.block_bytes), length) for shift in (-0.005, 0, 0.005)
    }
    assert logged in counts


@pytest.mark.parametrize(
    ("options", "blocks", "length", "logged"),
    [
        # weicj/vLLM-2080Ti-Definitive, profiles/2x2080Ti/README.md: no blocks are logged there, so the counts show
        # only that they are whole numbers of blocks of this size
        ({"kind": "float16", **MTP4}, 202, 148480, 149_964),
        ({"kind": "float16"}, 236, 176128, 179_940),
        ({"kind": "float16"}, 163, 121856, 122_608),
        ({**MTP4}, 204, 262144, 295_455),
        ({**MTP4}, 137, 186368, 190_540),
        ({}, 233, 338944, 354_143),
        # redlinedtm/vllm-v100-2080ti-recipes, docs/benchmarks.md: the 122B model on four V100, without prefix caching
        (
            {"architecture": AWQ_122B, "kind": "float16", "gpus": 4, "prefix_caching": False},
            699,
            8192,
            520_564,
        ),
        ({}, 383, 524288, 588_863),
        ({"kind": "turboquant_4bit_nc", **MTP4}, 326, 262144, 837_832),
        ({"architecture": FP8_35B, "kind": "float16"}, 277, 262144, 284_760),
        ({"architecture": FP8_35B}, 113, 221184, 223_158),
    ],
)
def test_logged_tokens_are_whole_blocks(options: Any, blocks: int, length: int, logged: int) -> None:
    assert tokens(pool(**options), blocks, length) == logged


def test_block_size_asked_for_is_the_granularity_of_a_hybrid() -> None:
    assert pool(**MTP3, block_size=16).block == 1600
    assert pool(**MTP3, block_size=8).block == 1600
    assert pool(**MTP3, block_size=1024).block == 2048


def test_states_without_prefix_caching_take_a_block_less() -> None:
    assert pool(**MTP3, prefix_caching=False).states == 4
    assert pool(prefix_caching=False).states == 1


def test_states_of_other_types() -> None:
    assert pool(**MTP3, state_bytes=2).block == 832
    assert pool(**MTP3, conv_bytes=4).block == 1664
    stored = model(QWEN_27B, weights_mib=1, linear={**QWEN_27B["linear"], "state_bytes": 2})
    assert pool(stored, **MTP3).block == 832


def test_drafting_makes_states_longer_but_not_larger() -> None:
    plain, drafting = pool(), pool(draft_tokens=5)
    assert (plain.block, drafting.block) == (1568, 1616)
    assert (plain.states, drafting.states) == (2, 7)


def test_full_attention_only_is_blocks_of_16() -> None:
    layout = pool(QWEN_06B, gpus=1, kind="auto")
    assert (layout.block, layout.full, layout.sliding, layout.linear) == (16, 1, 0, 0)
    assert layout.block_bytes == 28 * 16 * 2 * 8 * 128 * 2
    room = 1000 * MIB
    blocks = room // layout.block_bytes
    assert tokens(layout, blocks, 4096) == blocks * 16 == room // (16 * 2 * 8 * 128 * 2 * 28) * 16
    assert pool(QWEN_06B, gpus=1, kind="auto", block_size=64).block == 64


def test_sliding_layers_keep_their_window_and_what_is_under_way() -> None:
    layout = pool(GPT_OSS_20B, gpus=1, kind="auto", batch=2048)
    assert (layout.full, layout.sliding, layout.window) == (1, 1, 127 + 2048)
    assert layout.block_bytes == 12 * 16 * 2 * 8 * 64 * 2
    assert layout.blocks_of(131072) == 131072 // 16 + 136 + 1
    assert layout.blocks_of(1000) == 63 + 63 + 1


def test_a_draft_layer_makes_twelve_and_thirteen_two_groups_of_thirteen() -> None:
    """The example of vLLM's own comment: gpt-oss-20b with a drafter."""
    layout = pool(GPT_OSS_20B, gpus=1, kind="auto", draft_layers=1)
    assert (layout.full, layout.sliding) == (1, 1)
    assert layout.block_bytes == 13 * 16 * 2 * 8 * 64 * 2


def test_only_windows_take_the_draft_layer_too() -> None:
    windows = GPT_OSS_20B.model_copy(update={"layers": GPT_OSS_20B.layers.model_copy(update={"full_attention": 0})})
    layout = pool(windows, gpus=1, draft_layers=1)
    assert (layout.full, layout.sliding) == (0, 1)
    assert layout.block_bytes == 13 * 16 * 2 * 8 * 64


def test_a_window_that_nobody_knows_counts_as_full_attention() -> None:
    layout = pool(GPT_OSS_20B.model_copy(update={"sliding_window": None}), gpus=1)
    assert (layout.full, layout.sliding) == (1, 0)
    assert layout.block_bytes == 24 * 16 * 2 * 8 * 64


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("auto", 2048),
        ("bfloat16", 2048),
        ("fp8", 1024),
        ("fp8_e4m3", 1024),
        ("fp8_e5m2", 1024),
        ("int8_per_token_head", 1040),
        ("fp8_per_token_head", 1040),
        ("int4_per_token_head", 528),
        ("nvfp4", 576),
        ("turboquant_k8v4", 776),
        ("turboquant_4bit_nc", 524),
        ("turboquant_k3v4_nc", 460),
        ("turboquant_3bit_nc", 396),
        ("some_later_kind", 2048),
    ],
)
def test_bytes_of_a_token(kind: str, expected: int) -> None:
    """Two heads of 256 on each of two GPUs."""
    assert kv.token_bytes(FP8_27B, 2, kind) == expected


def test_float32_and_heads_on_every_gpu() -> None:
    assert kv.token_bytes(FP8_27B, 2, "auto", 4) == 4096
    assert kv.token_bytes(FP8_27B, 4, "auto") == kv.token_bytes(FP8_27B, 8, "auto") == 1024


@pytest.mark.parametrize("layout", [pool(**MTP3), pool(QWEN_06B, gpus=1), pool(GPT_OSS_20B, gpus=1)])
@pytest.mark.parametrize("blocks", [0, 1, 15, 16, 78, 162, 9000])
def test_the_longest_request_fits_and_the_next_does_not(layout: kv.Layout, blocks: int) -> None:
    longest = layout.longest(blocks, 131072)
    assert longest == 0 or layout.blocks_of(longest) <= blocks
    assert longest == 131072 or layout.blocks_of(longest + 1) > blocks


def test_the_longest_request_is_no_longer_than_the_model_can_take() -> None:
    assert pool(AWQ_27B, **MTP3).longest(10**6, 262144) == 262144
