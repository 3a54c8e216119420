"""Every flag that counts in the estimate, and what must never be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.architecture import Architecture
from gpufleet.memory import estimate
from tests.unit.architectures import AWQ_27B, AWQ_35B, FP8_27B, FP8_35B, GPT_OSS_20B, QWEN_06B, QWEN_27B, model
from tests.unit.memory_recipes import A1, BOX_B, RTX_2080_TI, RTX_3090, memory


@pytest.mark.parametrize("auto", ["auto", -1, "-1"])
def test_auto_is_the_longest_that_fits(auto: str | int) -> None:
    found = memory(FP8_27B, RTX_2080_TI, **BOX_B | {"max_model_len": auto})
    assert found.max_model_len == found.longest_len < 262_144
    assert found.fits


def test_auto_where_nothing_fits_is_not_said_to_fit() -> None:
    found = memory(AWQ_27B, RTX_2080_TI, 1, **A1 | {"max_model_len": "auto"})
    assert (found.max_model_len, found.longest_len, found.kv_tokens, found.fits) == (1, 0, 0, False)


def test_nothing_said_is_vllms_default() -> None:
    found = memory(QWEN_06B, RTX_3090, 1)
    assert found.max_model_len == 40960
    assert found == memory(
        QWEN_06B, RTX_3090, 1, gpu_memory_utilization=0.92, max_num_batched_tokens=2048, max_num_seqs=256
    )
    large = (81920, (8, 0))
    assert memory(QWEN_06B, large, 1) == memory(QWEN_06B, large, 1, max_num_batched_tokens=8192, max_num_seqs=1024)


def test_parts_add_up_to_the_budget() -> None:
    found = memory(FP8_27B, RTX_2080_TI, **BOX_B)
    parts = found.weights_mib + found.mtp_mib + found.vision_mib + found.activations_mib + found.graphs_mib
    assert parts + found.kv_mib == pytest.approx(found.budget_mib, abs=6)
    assert found.budget_mib == pytest.approx(0.92 * found.usable_mib, abs=2)


def differs(part: str, more: dict[str, Any], base: dict[str, Any] | None = None, **options: Any) -> float:
    """How much a part of box B's memory grows by a change of its flags."""
    base = BOX_B if base is None else base
    before, after = memory(FP8_27B, RTX_2080_TI, **base), memory(FP8_27B, RTX_2080_TI, **(base | more), **options)
    return float(getattr(after, part) - getattr(before, part))


@pytest.mark.parametrize(
    ("part", "more", "expected"),
    [
        ("budget_mib", {"gpu_memory_utilization": 0.82}, -0.1 * 22145),
        ("weights_mib", {"cpu_offload_gb": 2}, -2048),
        ("kv_mib", {"cpu_offload_gb": 2}, 2048),
        ("weights_mib", {"cpu_offload_gb": 100}, -14049),
        ("vision_mib", {"language_model_only": True}, -440),
        ("kv_mib", {"language_model_only": True}, 439.5),
        ("activations_mib", {"skip_mm_profiling": False}, 1380),
        ("activations_mib", {"skip_mm_profiling": False, "language_model_only": True}, 0),
        ("mtp_mib", {"speculative_config": None}, -228),
        ("mtp_mib", {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}, -228),
        ("mtp_mib", {"speculative_config": '{"method": "mtp", "num_speculative_tokens": 3}'}, 0),
        (
            "mtp_mib",
            {"speculative_config": {"method": "mtp", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1}},
            227,
        ),
        ("activations_mib", {"max_num_batched_tokens": 8192}, 364),
        ("activations_mib", {"max_num_batched_tokens": "8K"}, 364),
        ("activations_mib", {"dtype": "float32"}, 364),
        ("activations_mib", {"max_num_seqs": 256}, 1024 * 248320 * 16 / 2**20 - 364),
        ("graphs_mib", {"enforce_eager": True}, -27),
        ("graphs_mib", {"compilation_config": {"cudagraph_mode": "NONE"}}, -27),
        ("graphs_mib", {"compilation_config": {"cudagraph_capture_sizes": [4, 8, 12, 12, 9000]}}, 54),
        ("graphs_mib", {"compilation_config": {"max_cudagraph_capture_size": 16}}, 4 * 26.88),
        ("graphs_mib", {"compilation_config": {"cudagraph_mode": "FULL", "cudagraph_capture_sizes": [4]}}, 532),
        ("kv_tokens", {"enable_prefix_caching": False}, 162 / 75 * 100_000 - 162 / 78 * 100_000),
        ("kv_tokens", {"no_enable_prefix_caching": True}, 162 / 75 * 100_000 - 162 / 78 * 100_000),
        ("kv_mib", {"kv_cache_memory_bytes": 3 << 30}, 3072 - 4306),
    ],
)
def test_every_flag_counts(part: str, more: dict[str, Any], expected: float) -> None:
    assert differs(part, more) == pytest.approx(expected, abs=2.5)


def test_without_drafts_whole_steps_are_captured() -> None:
    plain = BOX_B | {"speculative_config": None, "compilation_config": None}
    assert differs("graphs_mib", {"compilation_config": {"cudagraph_mode": "PIECEWISE"}}, plain) == -532
    assert differs("graphs_mib", {"max_num_batched_tokens": 8192}, plain) == pytest.approx(909 - 532, abs=1)


def test_default_sizes_of_graphs() -> None:
    """`_set_cudagraph_sizes`: 1, 2, 4, every 8 below 256, every 16 up to 512."""
    for seqs, sizes in ((1, 2), (2, 3), (4, 4), (8, 5), (16, 7), (127, 34), (128, 35), (136, 36), (256, 51)):
        found = memory(QWEN_06B, RTX_3090, 1, max_num_seqs=seqs)
        assert found.graphs_mib == pytest.approx(sizes * 28 * 0.42, abs=1), seqs


def test_a_given_cache_must_fit_beside_the_rest() -> None:
    given = BOX_B | {"kv_cache_memory_bytes": "4G"}
    found = memory(FP8_27B, RTX_2080_TI, **given)
    assert (found.kv_mib, found.fits) == (4096, True)
    assert found == memory(FP8_27B, RTX_2080_TI, **given | {"gpu_memory_utilization": 0.5})
    too_much = memory(FP8_27B, RTX_2080_TI, **BOX_B | {"kv_cache_memory_bytes": "8G"})
    assert too_much.concurrency >= 1
    assert not too_much.starts
    assert not too_much.fits


def test_a_short_given_cache_does_not_fit() -> None:
    assert not memory(FP8_27B, RTX_2080_TI, **BOX_B | {"kv_cache_memory_bytes": "1g"}).fits


def test_a_head_that_is_not_in_the_checkpoint_is_not_loaded() -> None:
    without = model(QWEN_27B, weights_mib=28098)
    found = memory(without, RTX_2080_TI, **BOX_B)
    assert found.mtp_mib == 0
    assert found.kv_mib > memory(FP8_27B, RTX_2080_TI, **BOX_B).kv_mib


def test_a_newer_card_needs_no_room_for_its_vision_tower() -> None:
    asked = {"skip-mm-profiling": False, "max-model-len": 8192}
    flags = [estimate(FP8_27B, 24576, 2, asked, capability=found).activations_mib for found in (None, (7, 5), (8, 6))]
    assert flags[0] == flags[1] == flags[2] + 1380


def test_windows_make_room_for_more_tokens() -> None:
    asked = {"max_model_len": 131072, "max_num_seqs": 4}
    every = GPT_OSS_20B.model_copy(update={"sliding_window": None})
    assert memory(GPT_OSS_20B, RTX_3090, 1, **asked).kv_tokens > 1.5 * memory(every, RTX_3090, 1, **asked).kv_tokens
    later = {**asked, "no_async_scheduling": True}
    assert memory(GPT_OSS_20B, RTX_3090, 1, **later).kv_tokens > memory(GPT_OSS_20B, RTX_3090, 1, **asked).kv_tokens


@pytest.mark.parametrize("flag", ["max-model-len", "max-num-seqs", "gpu-memory-utilization", "kv-cache-memory-bytes"])
@pytest.mark.parametrize("nonsense", [None, True, "much", [], {}])
def test_a_value_that_is_none_counts_as_not_given(flag: str, nonsense: Any) -> None:
    assert estimate(FP8_27B, 22528, 2, {flag: nonsense}) == estimate(FP8_27B, 22528, 2, {})


@pytest.mark.parametrize("flag", ["speculative-config", "compilation-config"])
@pytest.mark.parametrize("nonsense", ["{", 3, [], "[]"])
def test_a_config_that_is_no_mapping_counts_as_not_given(flag: str, nonsense: Any) -> None:
    assert estimate(FP8_27B, 22528, 2, {flag: nonsense}) == estimate(FP8_27B, 22528, 2, {})


MODELS = st.sampled_from([FP8_27B, AWQ_27B, AWQ_35B, FP8_35B, QWEN_06B, GPT_OSS_20B])
CARDS = st.integers(1, 200_000)
LENGTHS = st.integers(1, 300_000)
FLAGS = st.fixed_dictionaries(
    {},
    optional={
        "max-model-len": LENGTHS,
        "max-num-seqs": st.integers(1, 64),
        "max-num-batched-tokens": st.integers(1, 16384),
        "gpu-memory-utilization": st.floats(0.01, 1),
        "kv-cache-dtype": st.sampled_from(["auto", "fp8", "int8_per_token_head", "turboquant_k8v4"]),
        "block-size": st.sampled_from([16, 32, 64]),
        "enable-prefix-caching": st.booleans(),
        "enforce-eager": st.booleans(),
        "language-model-only": st.booleans(),
        "cpu-offload-gb": st.floats(0, 64),
        "kv-cache-memory-bytes": st.integers(0, 1 << 38),
        "speculative-config": st.fixed_dictionaries(
            {"method": st.sampled_from(["mtp", "ngram"]), "num_speculative_tokens": st.integers(1, 8)}
        ),
    },
)


@given(MODELS, CARDS, st.integers(0, 20_000), st.sampled_from([1, 2, 4, 8]), FLAGS)
def test_more_memory_never_gives_fewer_tokens(
    architecture: Architecture, small: int, more: int, gpus: int, args: dict[str, Any]
) -> None:
    # what vLLM takes for a batch when nothing is said jumps at 70 GiB
    args = {"max-num-batched-tokens": 2048, "max-num-seqs": 8} | args
    less, most = (estimate(architecture, size, gpus, args) for size in (small, small + more))
    assert less.kv_tokens <= most.kv_tokens
    assert less.concurrency <= most.concurrency
    assert less.longest_len <= most.longest_len
    assert not less.fits or most.fits


@given(MODELS, CARDS, LENGTHS, LENGTHS, st.sampled_from([1, 2]), FLAGS)
def test_a_longer_request_never_raises_concurrency(
    architecture: Architecture, card: int, one: int, other: int, gpus: int, args: dict[str, Any]
) -> None:
    short, long = (
        estimate(architecture, card, gpus, args | {"max-model-len": length}) for length in sorted((one, other))
    )
    assert long.concurrency <= short.concurrency


@given(
    st.sampled_from([FP8_27B, AWQ_27B, AWQ_35B, FP8_35B]), st.integers(8192, 100_000), st.sampled_from([1, 2]), FLAGS
)
def test_more_gpus_never_give_fewer_tokens(
    architecture: Architecture, card: int, gpus: int, args: dict[str, Any]
) -> None:
    """Where heads divide: the 27B model has 4 of keys, the 35B 2; what GPUs hold to talk is less than half of these."""
    if 2 * gpus > architecture.kv_heads:
        gpus = 1
    args = {name: value for name, value in args.items() if name not in ("kv-cache-memory-bytes", "cpu-offload-gb")}
    few, many = (estimate(architecture, card, count, args) for count in (gpus, 2 * gpus))
    assert few.kv_tokens <= many.kv_tokens


@given(MODELS, CARDS, st.sampled_from([1, 2, 3, 4, 8]), FLAGS)
def test_nothing_is_ever_negative(architecture: Architecture, card: int, gpus: int, args: dict[str, Any]) -> None:
    found = estimate(architecture, card, gpus, args)
    assert all(value >= 0 for value in vars(found).values())
    assert found.max_model_len >= 1
    assert found.longest_len <= architecture.max_positions
