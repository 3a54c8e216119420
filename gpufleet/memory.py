"""Memory of one GPU of an instance: what the engine takes of it, and how many KV tokens that leaves room for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet.architecture import Architecture


@dataclass(frozen=True)
class Memory:
    """Of one GPU, the one with the least memory in the group; sizes in MiB.

    + budget_mib: what the engine may take, `gpu-memory-utilization` of the card
    + kv_mib: what is left of the budget for KV cache and recurrent states
    + kv_tokens: tokens that fit there, as vLLM logs them (`GPU KV cache size`)
    + concurrency: requests of `max_model_len` tokens that fit at once
    """

    gpu_mib: int
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

    @property
    def fits(self) -> bool:
        """Whether one request of the full length can be served; vLLM does not start otherwise."""
        return self.concurrency >= 1


def estimate(architecture: Architecture, gpu_mib: int, gpus: int, args: Mapping[str, Any]) -> Memory:
    """The memory of each of `gpus` cards with `gpu_mib` that serve a model together.

    + args: the engine's flags as planned
    """
    raise NotImplementedError
