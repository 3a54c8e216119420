"""What an owner can change so that a model fits where it does not: one setting each, the plainest first. No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet.dialect import DIALECTS
from gpufleet.instance import Instance
from gpufleet.memory import Memory
from gpufleet.memory_args import switch
from gpufleet.rules.memory import STEP, smaller_kv
from gpufleet.traits import arch

SIZES = (2, 4, 8, 16)
# Plans the box with these settings; None: it has no place then, or a rule refuses that.
Try = Callable[[Mapping[str, Any]], Memory | None]


@dataclass(frozen=True)
class Change:
    """Settings that make it fit.

    + title: what it is, in words; + settings: as in a layer; + memory: of a card after it
    """

    title: str
    settings: Mapping[str, Any]
    memory: Memory

    @property
    def lines(self) -> list[str]:
        """Lines for a file of group_data."""
        return [f"{key} = {_python(value)}" for key, value in self.settings.items()]

    @property
    def figure(self) -> str:
        found = self.memory
        return f"room for {found.concurrency:.1f} requests of {found.max_model_len:,} tokens"


def laid(given: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over settings; flags are laid one by one."""
    result = {**given, **change}
    if "serve_args" in change:
        result["serve_args"] = {**(given.get("serve_args") or {}), **change["serve_args"]}
    return result


def changes(instance: Instance, facts: Mapping[str, Any], plan: Try) -> Iterator[Change]:
    """Each single change that makes it fit, the plainest first; when none does, several together that do."""
    memory = instance.memory
    if memory is None:
        return
    found = False
    singles = list(_single(instance, facts))
    before, after = singles[: _kv(singles)], singles[_kv(singles) :]
    shorter = _shorter(instance, "", {}, memory, plan)
    for change in (*_fitting(before, plan), shorter, _fewer(instance, plan), *_fitting(after, plan)):
        if change is not None:
            found = True
            yield change
    if not found:
        streams = [("one request at a time", {"streams": 1})] if (instance.streams or 1) > 1 else []
        yield from _together(instance, [*before, *streams, *after], plan)


def _kv(singles: list[tuple[str, dict[str, Any]]]) -> int:
    """How many of them are about the KV cache; these come first."""
    return sum("KV cache" in title for title, _ in singles)


def _fitting(singles: list[tuple[str, dict[str, Any]]], plan: Try) -> Iterator[Change]:
    for title, settings in singles:
        memory = plan(settings)
        if memory is not None and memory.fits:
            yield Change(title, settings, memory)


def _shorter(instance: Instance, title: str, settings: Mapping[str, Any], memory: Memory, plan: Try) -> Change | None:
    """The longest round length that fits with these settings, where the full one does not.

    + memory: of a card with them
    """
    length = memory.longest_len // STEP * STEP
    if length < STEP or length >= memory.max_model_len:
        return None
    whole = laid(settings, {"serve_args": {DIALECTS[instance.stack.engine].max_model_len: length}})
    found = plan(whole)
    if found is None or not found.fits:
        return None
    words = f"a context of {length:,} tokens"
    return Change(f"{title}, {words}" if title else words, whole, found)


def _fewer(instance: Instance, plan: Try) -> Change | None:
    """As many requests at once as fit, where fewer do."""

    def fits(streams: int) -> bool:
        memory = plan({"streams": streams})
        return memory is not None and memory.fits

    streams = most(fits, (instance.streams or 1) - 1)
    memory = plan({"streams": streams}) if streams else None
    words = "1 request at a time" if streams == 1 else f"{streams} requests at once"
    return Change(words, {"streams": streams}, memory) if memory else None


def _together(instance: Instance, singles: list[tuple[str, dict[str, Any]]], plan: Try) -> Iterator[Change]:
    """The fewest changes in their order that make it fit at full length, else at the longest that then fits."""
    settings: dict[str, Any] = {}
    titles: list[str] = []
    tried: list[tuple[str, dict[str, Any], Memory]] = []
    for title, single in singles:
        memory = plan(laid(settings, single))
        if memory is None:  # this one does not go here
            continue
        settings = laid(settings, single)
        titles.append(title)
        if memory.fits:
            yield Change(", ".join(titles), settings, memory)
            return
        tried.append((", ".join(titles), settings, memory))
    for title, several, memory in tried:
        if change := _shorter(instance, title, several, memory, plan):
            yield change
            return


def _single(instance: Instance, facts: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Changes that are no amounts, in the order in which they are named."""
    args, shape = instance.args, instance.model.architecture
    vllm = instance.stack.engine == "vllm"
    by_index = {gpu["index"]: gpu for gpu in facts.get("gpus") or []}
    archs = {arch(by_index[index]) for index in instance.gpus}
    if kind := smaller_kv(instance, archs):
        yield f"a KV cache of {kind}", {"serve_args": {"kv-cache-dtype": kind}}
    if not vllm and args.get("quant-policy") not in (4, 8):
        yield "a KV cache of 8 bits", {"serve_args": {"quant-policy": 8}}
    vision = bool(shape and shape.vision_mib) and not switch(args, "language-model-only", False)
    if vllm and vision:
        yield "no images", {"serve_args": {"language-model-only": True}}
    if vllm and args.get("speculative-config"):
        yield "no speculation", {"serve_args": {"speculative-config": None}}
    if vllm and vision and not switch(args, "skip-mm-profiling", False):
        yield "no room kept for images", {"serve_args": {"skip-mm-profiling": True}}
    alike = [gpu for gpu in by_index.values() if arch(gpu) in archs]
    for size in SIZES:
        if max(instance.size, len(instance.gpus)) < size <= len(alike):
            yield f"{size} GPUs to an instance", {"tensor_parallel_size": size}


def _python(value: Any) -> str:
    """As it is written in a file of Python."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)}: {_python(item)}" for key, item in value.items()) + "}"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def most(holds: Callable[[int], bool], limit: int) -> int:
    """The largest number up to `limit` of which it holds, when it does not hold of what is larger; 0 if of none."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
