"""The engine's flags that decide memory, read with vLLM's own defaults."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# vllm/utils/argparse_utils.py: small letters are decimal, capitals binary
UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Asked:
    """What the flags ask for.

    + max_model_len: None: as long as fits (`auto`)
    + kv_bytes: `kv-cache-memory-bytes`, of one GPU; None: what is left
    + captures: batch sizes for which CUDA graphs are made, none when eager
    + full_graphs: whether whole steps are captured too
    """

    utilization: float
    max_model_len: int | None
    kv_bytes: int | None
    kv_dtype: str
    number_bytes: int
    conv_bytes: int
    state_bytes: int | None
    block_size: int | None
    batch: int
    in_flight: int
    seqs: int
    prefix_caching: bool
    draft_tokens: int
    mtp: bool
    draft_gpus: int | None
    captures: int
    full_graphs: bool
    offload_mib: int
    vision: bool
    vision_profiled: bool


def read(args: Mapping[str, Any], max_positions: int, gpu_mib: int) -> Asked:
    """`args` by name, as planned; what they do not say is as vLLM 0.24.0 and 0.27.1 have it (`engine/arg_utils.py`)."""
    large = gpu_mib >= 70 * 1024
    batch = number(args.get("max-num-batched-tokens"), 8192 if large else 2048)
    seqs = number(args.get("max-num-seqs"), 1024 if large else 256)
    draft = mapping(args.get("speculative-config"))
    draft_tokens = number(draft.get("num_speculative_tokens"), 0)
    method = str(draft.get("method", ""))
    mode = str(mapping(args.get("compilation-config")).get("cudagraph_mode", "")).upper()
    eager = switch(args, "enforce-eager", False) or mode == "NONE"
    kv_bytes = number(args.get("kv-cache-memory-bytes"), -1)
    length = args.get("max-model-len")
    # FlashInfer, the attention of an fp8 cache below SM89, captures no whole steps of a drafting engine.
    whole = mode.startswith("FULL") if mode else not draft_tokens
    text_only = switch(args, "language-model-only", False)
    return Asked(
        utilization=fraction(args.get("gpu-memory-utilization"), 0.92),
        max_model_len=None if str(length) in ("auto", "-1") else max(1, number(length, max_positions)),
        kv_bytes=None if kv_bytes < 0 else kv_bytes,
        kv_dtype=str(args.get("kv-cache-dtype", "auto")),
        number_bytes=_number_bytes(args.get("dtype")) or 2,
        conv_bytes=_number_bytes(args.get("mamba-cache-dtype")) or 2,
        state_bytes=_number_bytes(args.get("mamba-ssm-cache-dtype")),
        block_size=number(args.get("block-size"), 0) or None,
        batch=batch,
        in_flight=batch * (2 if switch(args, "async-scheduling", True) else 1),
        seqs=seqs,
        prefix_caching=switch(args, "enable-prefix-caching", True),
        draft_tokens=draft_tokens,
        mtp=method == "mtp" or method.endswith("_mtp"),
        draft_gpus=number(draft.get("draft_tensor_parallel_size"), 0) or None,
        captures=0 if eager else _captures(args, seqs * (1 + draft_tokens), batch),
        full_graphs=whole and not eager,
        offload_mib=int(fraction(args.get("cpu-offload-gb"), 0) * 1024),
        vision=not text_only,
        vision_profiled=not text_only and not switch(args, "skip-mm-profiling", False),
    )


def number(value: Any, default: int) -> int:
    """A count as the engine reads it: 4096, `4k` (4000) or `4K` (4096); `default` for what is none."""
    if isinstance(value, bool):
        return default
    if isinstance(value, int | float):
        return int(value)
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d+)?)([kKmMgGtT]?)\s*", value) if isinstance(value, str) else None
    return int(float(found[1]) * UNITS.get(found[2], 1)) if found else default


def fraction(value: Any, default: float) -> float:
    """A share, or an amount that is no whole number; `default` for what is none."""
    try:
        found = default if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return default
    return found if math.isfinite(found) else default


def switch(args: Mapping[str, Any], name: str, default: bool) -> bool:
    """A flag without a value, whose contrary is `no-` and its name."""
    if args.get(f"no-{name}") is True:
        return False
    value = args.get(name)
    return value if isinstance(value, bool) else default


def mapping(value: Any) -> Mapping[str, Any]:
    """A flag that is JSON, written as a mapping or as its text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def _number_bytes(dtype: Any) -> int | None:
    """Bytes of a number of a named type; None for `auto` or none."""
    return {"float32": 4, "float": 4, "half": 2, "float16": 2, "bfloat16": 2}.get(str(dtype))


def _captures(args: Mapping[str, Any], tokens: int, batch: int) -> int:
    """How many sizes are captured for at most `tokens` tokens a step (`VllmConfig._set_cudagraph_sizes`)."""
    config = mapping(args.get("compilation-config"))
    given = config.get("cudagraph_capture_sizes")
    if isinstance(given, list | tuple):
        return len({size for size in given if isinstance(size, int) and size <= batch})
    largest = min(number(config.get("max_cudagraph_capture_size"), min(2 * tokens, 512)), batch)
    small = sum(size <= largest for size in (1, 2, 4))
    return small + min(largest, 255) // 8 + (max(0, largest - 240) // 16)
