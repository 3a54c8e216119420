"""Whether cards hold a model: the estimate of gpufleet.memory, asked in the engine's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpufleet.memory import Memory, estimate
from gpufleet.memory_lmdeploy import as_vllm
from gpufleet.models import Model
from gpufleet.stacks import Stack


def memory_of(model: Model, stack: Stack, cards: Sequence[Mapping[str, Any]], args: Mapping[str, Any]) -> Memory | None:
    """Of the card with the least memory; None without cards, or when the model's page gives no sizes."""
    sizes = [gpu["memory_mib"] for gpu in cards]
    shape = model.architecture
    if not sizes or not all(sizes) or shape is None:
        return None
    if stack.engine == "lmdeploy":
        args = as_vllm(shape, min(sizes), len(sizes), args)
    major, minor = min(tuple(gpu["compute_capability"]) for gpu in cards)
    return estimate(shape, min(sizes), len(sizes), args, capability=(major, minor))


def holds(model: Model, stack: Stack, gpus: Sequence[Mapping[str, Any]], size: int, args: Mapping[str, Any]) -> bool:
    """Whether `size` of these GPUs hold the model at its full length, whichever they are."""
    least = min(gpus, key=lambda gpu: gpu["memory_mib"] or 0)
    found = memory_of(model, stack, [least] * size, args)
    return found is None or found.fits
