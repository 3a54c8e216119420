"""Memory of one GPU of an instance: what the engine takes of it, and how many KV tokens that leaves room for.

How it is computed, where each constant comes from and how far off it was: docs/reference/memory.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet import kv, memory_args
from gpufleet.architecture import Architecture
from gpufleet.memory_args import Asked

MIB = 1 << 20

# Sources of all of these: docs/reference/memory.md#constants
RESERVED = 0.017  # of a card's memory, which the driver keeps and CUDA does not show
CONTEXT_MIB = 400  # CUDA context and libraries; outside the budget
CONTEXT_PEERS_MIB = 200  # NCCL's, between several GPUs; outside the budget
WORKSPACES_MIB = 500  # FlashInfer's 394 MiB, cuBLAS, modules loaded while profiling
WORKSPACES_PEERS_MIB = 460  # what several GPUs hold to talk to each other
HIDDEN_COPIES = 4  # of hidden_size numbers a token, not split over the GPUs
WIDE_COPIES = 3  # of intermediate_size numbers a token: gate, up and their product
LOGIT_COPIES = 4  # float32 over the vocabulary for each sampled row: logits, probabilities, two of sorting
GRAPH_LAYER_MIB = 0.42  # of one captured size, a layer
FULL_GRAPHS_MIB = 532  # whole steps captured: at least this …
FULL_GRAPHS_TOKEN_MIB = 0.111  # … or this a token of a batch, since vLLM 0.26
ENCODER_MIB = 1380  # one image of the largest size through a vision tower without FlashAttention
FLASH_ATTENTION = (8, 0)  # the least compute capability that has it


@dataclass(frozen=True)
class Memory:
    """Of one GPU, the one with the least memory in the group; sizes in MiB.

    + usable_mib: what CUDA shows of `gpu_mib`
    + budget_mib: what the engine may take, `gpu-memory-utilization` of the card; or, with `kv-cache-memory-bytes`, what
      it takes
    + context_mib: what it takes beside the budget, before it looks how much is free
    + kv_mib: what is left of the budget for KV cache and recurrent states
    + kv_tokens: tokens that fit there, as vLLM logs them (`GPU KV cache size`)
    + concurrency: requests of `max_model_len` tokens that fit at once
    + longest_len: the longest request that would fit, of those that the model can take
    """

    gpu_mib: int
    usable_mib: int
    budget_mib: int
    context_mib: int
    weights_mib: int
    mtp_mib: int
    vision_mib: int
    activations_mib: int
    graphs_mib: int
    kv_mib: int
    kv_tokens: int
    max_model_len: int
    concurrency: float
    longest_len: int

    @property
    def starts(self) -> bool:
        """Whether so much is free as the engine means to take; it asks that before it loads anything."""
        return self.context_mib + self.budget_mib <= self.usable_mib

    @property
    def fits(self) -> bool:
        """Whether one request of the full length can be served; vLLM does not start otherwise."""
        return self.concurrency >= 1 and self.starts


def estimate(
    architecture: Architecture,
    gpu_mib: int,
    gpus: int,
    args: Mapping[str, Any],
    *,
    capability: tuple[int, int] | None = None,
) -> Memory:
    """The memory of each of `gpus` cards with `gpu_mib` that serve a model together by tensor parallelism.

    + gpus: at least 1
    + args: the engine's flags as planned, by vLLM's names (lmdeploy's: `gpufleet.memory_lmdeploy`)
    + capability: the cards' compute capability; None counts what the oldest need
    """
    asked = memory_args.read(args, architecture.max_positions, gpu_mib)
    usable = gpu_mib * (1 - RESERVED)
    context = CONTEXT_MIB + (CONTEXT_PEERS_MIB if gpus > 1 else 0)
    mtp = architecture.mtp if asked.mtp and asked.draft_tokens else None
    weights = max(0.0, architecture.weights_mib / gpus - asked.offload_mib)
    head = mtp.mib / (asked.draft_gpus or gpus) if mtp else 0.0
    vision = architecture.vision_mib / gpus if asked.vision else 0.0
    activations = _activations(architecture, gpus, asked, capability)
    graphs = _graphs(architecture, asked)
    taken = weights + head + vision + activations + graphs
    room = usable * asked.utilization - taken if asked.kv_bytes is None else asked.kv_bytes / MIB
    room = max(0.0, room)

    pool = kv.layout(
        architecture,
        gpus=gpus,
        kind=asked.kv_dtype,
        number_bytes=asked.number_bytes,
        conv_bytes=asked.conv_bytes,
        state_bytes=asked.state_bytes,
        block_size=asked.block_size,
        batch=asked.in_flight,
        draft_layers=mtp.layers if mtp else 0,
        draft_tokens=asked.draft_tokens,
        prefix_caching=asked.prefix_caching,
    )
    blocks = int(room * MIB // pool.block_bytes)
    longest = pool.longest(blocks, architecture.max_positions)
    length = asked.max_model_len or max(1, longest)
    concurrency = blocks / pool.blocks_of(length)
    return Memory(
        gpu_mib=gpu_mib,
        usable_mib=int(usable),
        budget_mib=math.ceil(usable * asked.utilization if asked.kv_bytes is None else taken + room),
        context_mib=context,
        weights_mib=math.ceil(weights),
        mtp_mib=math.ceil(head),
        vision_mib=math.ceil(vision),
        activations_mib=math.ceil(activations),
        graphs_mib=math.ceil(graphs),
        kv_mib=int(room),
        kv_tokens=int(concurrency * length),
        max_model_len=length,
        concurrency=concurrency,
        longest_len=longest,
    )


def _activations(architecture: Architecture, gpus: int, asked: Asked, capability: tuple[int, int] | None) -> float:
    """What the profile run finds beside the weights, in MiB: workspaces, and the larger of the prefill and the sampler.

    An image goes through the vision tower before the prefill, and what it leaves stays while the tokens are run.
    """
    wide = WIDE_COPIES * architecture.intermediate_size / gpus
    # Each expert's answer is kept until they are added up.
    copies = HIDDEN_COPIES + (architecture.experts_per_token or 0)
    token = asked.number_bytes * (wide + copies * architecture.hidden_size)
    rows = asked.seqs * (1 + asked.draft_tokens)
    sampler = min(rows, asked.batch) * architecture.vocab_size * 4 * LOGIT_COPIES
    found = WORKSPACES_MIB + max(asked.batch * token, sampler) / MIB
    if gpus > 1:
        found += WORKSPACES_PEERS_MIB
    flash = capability is not None and capability >= FLASH_ATTENTION
    if architecture.vision_mib and asked.vision_profiled and not flash:
        found += ENCODER_MIB
    return found


def _graphs(architecture: Architecture, asked: Asked) -> float:
    if not asked.captures:
        return 0.0
    graphs = asked.captures * architecture.layers.count * GRAPH_LAYER_MIB
    if asked.full_graphs and architecture.linear:
        graphs += max(FULL_GRAPHS_MIB, asked.batch * FULL_GRAPHS_TOKEN_MIB)
    return graphs
