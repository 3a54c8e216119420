"""Boxes and flags of the recipes, for the tests of the memory estimate."""

from __future__ import annotations

from typing import Any

from gpufleet.architecture import Architecture
from gpufleet.memory import Memory, estimate

RTX_2080_TI = (22528, (7, 5))
RTX_3090 = (24576, (8, 6))
V100_16 = (16384, (7, 0))
V100_32 = (32768, (7, 0))


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
