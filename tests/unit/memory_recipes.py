"""Boxes and flags of the recipes, for the tests of the memory estimate."""

from __future__ import annotations

from typing import Any

from gpufleet.architecture import Architecture
from gpufleet.memory import Memory, estimate
from tests.unit.architectures import AUTOROUND_27B, AWQ_27B, AWQ_35B, AWQ_122B, AWQ_122B_LARGE, FP8_27B

RTX_2080_TI = (22528, (7, 5))
RTX_3090 = (24576, (8, 6))
V100_16 = (16384, (7, 0))
V100_32 = (32768, (7, 0))
T10 = (16384, (7, 5))

Case = tuple[Architecture, tuple[int, tuple[int, int]], int, dict[str, Any]]


def memory(architecture: Architecture, card: tuple[int, tuple[int, int]], gpus: int = 2, **args: Any) -> Memory:
    """With flags written as Python writes names."""
    flags = {name.replace("_", "-"): value for name, value in args.items()}
    return estimate(architecture, card[0], gpus, flags, capability=card[1])


def mtp(tokens: int, method: str = "mtp") -> dict[str, Any]:
    return {"speculative_config": {"method": method, "num_speculative_tokens": tokens}}


def graphs(*sizes: int) -> dict[str, Any]:
    return {"compilation_config": {"cudagraph_capture_sizes": list(sizes), "max_cudagraph_capture_size": sizes[-1]}}


PIECEWISE = {"compilation_config": {"cudagraph_mode": "PIECEWISE"}}
BOX_B: dict[str, Any] = {
    "max_model_len": 100_000,
    "max_num_seqs": 1,
    "max_num_batched_tokens": 4096,
    "gpu_memory_utilization": 0.92,
    "skip_mm_profiling": True,
    "cpu_offload_gb": 0,
    "kv_cache_dtype": "fp8_e4m3",
    **mtp(3),
    "compilation_config": {
        "cudagraph_mode": "PIECEWISE",
        "cudagraph_capture_sizes": [4],
        "max_cudagraph_capture_size": 4,
    },
}
BOX_A: dict[str, Any] = {
    "max_model_len": 200_000,
    "max_num_batched_tokens": 4096,
    "gpu_memory_utilization": 0.92,
    "kv_cache_dtype": "fp8_e4m3",
    "no_async_scheduling": True,
    "language_model_only": True,
    "skip_mm_profiling": True,
}
A1 = BOX_A | {"max_num_seqs": 3} | mtp(3) | graphs(4, 8, 12)
A2 = BOX_A | {"max_num_seqs": 7} | mtp(1) | graphs(2, 4, 6, 8, 10, 12)
BOX_C: dict[str, Any] = {
    "max_model_len": 262_144,
    "max_num_seqs": 1,
    "max_num_batched_tokens": 4096,
    "gpu_memory_utilization": 0.95,
    "kv_cache_dtype": "fp8_e4m3",
    "block_size": 16,
    **mtp(3, "qwen3_5_mtp"),
}
# weicj's profiles of 2048 tokens a batch, text only
TEXT = {"max_num_seqs": 1, "max_num_batched_tokens": 2048, "language_model_only": True}
FULL = {"max_model_len": 262_144}


def fp8(**more: Any) -> dict[str, Any]:
    return TEXT | {"kv_cache_dtype": "fp8"} | more


def turbo(**more: Any) -> dict[str, Any]:
    return TEXT | {"kv_cache_dtype": "turboquant_k8v4"} | more


def dflash(tokens: int) -> dict[str, Any]:
    """A draft model of its own, whose weights the estimate does not count."""
    return {"speculative_config": {"method": "dflash", "num_speculative_tokens": tokens}}


# What runs: the boxes of recipes.md, and the owners' recipes of field-problems.md by their number. What a recipe does
# not say of its batch and its images is that of weicj's text profiles, which most of them are made of.
RUNNING: dict[str, Case] = {
    "A1": (AWQ_27B, RTX_2080_TI, 2, A1),
    "A2": (AWQ_35B, RTX_2080_TI, 2, A2),
    "A2 without MTP": (AWQ_35B, RTX_2080_TI, 2, BOX_A | {"max_num_seqs": 7}),
    "B": (FP8_27B, RTX_2080_TI, 2, BOX_B),
    "B with FP16 KV": (FP8_27B, RTX_2080_TI, 2, BOX_B | {"kv_cache_dtype": "auto"}),
    "C": (AWQ_27B, RTX_3090, 2, BOX_C),
    "1": (FP8_27B, RTX_2080_TI, 2, fp8(max_model_len=180_000, kv_cache_memory_bytes="4G") | mtp(3)),
    "2": (AWQ_27B, RTX_2080_TI, 2, fp8(**FULL) | mtp(3)),
    "3": (AWQ_27B, RTX_2080_TI, 2, fp8(max_model_len=230_000, kv_cache_memory_bytes=5_115_441_742) | mtp(5)),
    "4": (FP8_27B, RTX_2080_TI, 2, TEXT | {"max_model_len": 131_072} | mtp(3)),
    "5": (FP8_27B, RTX_2080_TI, 2, turbo(**FULL) | mtp(3)),
    "6": (
        FP8_27B,
        RTX_2080_TI,
        2,
        fp8(**FULL, gpu_memory_utilization=0.97, enable_prefix_caching=False) | mtp(3),
    ),
    "7": (FP8_27B, RTX_2080_TI, 2, TEXT | {"max_model_len": 147_456} | PIECEWISE),
    "8": (FP8_27B, T10, 4, turbo(**FULL) | mtp(3)),
    "9": (AWQ_27B, RTX_2080_TI, 2, TEXT | {"max_model_len": 8192, "gpu_memory_utilization": 0.86} | mtp(3)),
    "10": (AWQ_27B, RTX_2080_TI, 2, turbo(**FULL, gpu_memory_utilization=0.85) | mtp(3)),
    "11": (FP8_27B, RTX_2080_TI, 2, TEXT | {"max_model_len": 131_072} | mtp(2) | graphs(3)),
    "13": (AWQ_27B, RTX_2080_TI, 2, TEXT | {"max_model_len": 32_768} | mtp(3)),
    "14": (AWQ_122B, RTX_2080_TI, 4, turbo(max_model_len=4096, gpu_memory_utilization=0.97)),
    "14 with larger weights": (
        AWQ_122B_LARGE,
        RTX_2080_TI,
        4,
        turbo(max_model_len=4096, gpu_memory_utilization=0.97),
    ),
    "15": (AWQ_122B, V100_32, 4, {"max_model_len": 8192, "gpu_memory_utilization": 0.9, "language_model_only": True}),
    "16": (FP8_27B, V100_16, 4, TEXT | FULL | graphs(1, 2, 4, 8, 16)),
    "17": (FP8_27B, V100_16, 4, TEXT | FULL | {"kv_cache_dtype": "fp8_e5m2"} | mtp(4)),
    "18": (AWQ_27B, V100_32, 2, TEXT | FULL | {"max_num_seqs": 4}),
    "19": (
        AUTOROUND_27B,
        RTX_3090,
        2,
        FULL | {"kv_cache_dtype": "fp8_e4m3", "max_num_batched_tokens": 8192} | mtp(3),
    ),
}
# The same with a draft model beside it, of so many MiB if each card holds all of it: DFlash2 for Qwen3.8-27B has 1.92e9
# numbers, syv-ai's in 4 bits is a file of 1.2 GB.
DRAFTING: dict[str, tuple[Case, int]] = {
    "12": ((AWQ_27B, RTX_2080_TI, 2, fp8(max_model_len=253_952) | dflash(7)), 3662),
    "20": ((AUTOROUND_27B, RTX_3090, 2, TEXT | {"max_model_len": 65_536, "max_num_seqs": 8} | dflash(7)), 1145),
}
# What a pool of a given size must hold. carjorvaz: 5.5 GiB on one card, a layout of 4 bits of their own.
POOLS: dict[str, tuple[Case, int]] = {
    "21": ((AUTOROUND_27B, RTX_2080_TI, 1, TEXT | FULL | {"kv_cache_dtype": "int4_per_token_head"} | dflash(7)), 5632),
}
