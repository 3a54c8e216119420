"""lmdeploy's flags in vLLM's names, near enough to say whether a model fits.

Not the same: TurboMind sizes its cache as a share of what is free after loading, keeps recurrent states apart from it
and captures no graphs; its workspaces are taken from the rest. No figure of a box was at hand to check it against.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufleet import kv
from gpufleet.architecture import Architecture
from gpufleet.memory import CONTEXT_MIB, CONTEXT_PEERS_MIB, MIB, RESERVED
from gpufleet.memory_args import fraction, number, switch

# lmdeploy/messages.py of 0.18.0, TurbomindEngineConfig and QuantPolicy; the batch is utils.get_max_batch_size's
SHARE = 0.8
BLOCK = 64
BATCH = 128
PREFILL = 8192
KINDS = {
    0: "auto",
    4: "int4_per_token_head",
    8: "int8_per_token_head",
    16: "fp8_e4m3",
    17: "fp8_e5m2",
    42: "int4_per_token_head",  # TurboQuant, 4 and 2 bits: it takes less than that
}


def as_vllm(architecture: Architecture, gpu_mib: int, gpus: int, args: Mapping[str, Any]) -> dict[str, Any]:
    """`args` of `lmdeploy serve api_server` (by name, without dashes) as flags that `memory.estimate` reads."""
    kind = KINDS.get(number(args.get("quant-policy"), 0), "auto")
    block = number(args.get("cache-block-seq-len"), BLOCK)
    text_only = switch(args, "language-model-only", False)
    entries = fraction(args.get("cache-max-entry-count"), SHARE)
    if entries > 1:  # blocks, not a share
        layers = architecture.layers.full_attention + architecture.layers.sliding_attention
        cache = entries * block * kv.token_bytes(architecture, gpus, kind) * layers
    else:
        loaded = architecture.weights_mib + (0 if text_only else architecture.vision_mib)
        context = CONTEXT_MIB + (CONTEXT_PEERS_MIB if gpus > 1 else 0)
        cache = entries * (gpu_mib * (1 - RESERVED) - context - loaded / gpus) * MIB
    return {
        "max-model-len": number(args.get("session-len"), architecture.max_positions),
        "max-num-seqs": number(args.get("max-batch-size"), BATCH),
        "max-num-batched-tokens": number(args.get("max-prefill-token-num"), PREFILL),
        "kv-cache-dtype": kind,
        "kv-cache-memory-bytes": max(0, int(cache)),
        "block-size": block,
        "enable-prefix-caching": switch(args, "enable-prefix-caching", False),
        "language-model-only": text_only,
        "enforce-eager": True,
    }
