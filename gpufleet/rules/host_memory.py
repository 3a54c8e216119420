"""Rules about the memory of the host that loads models onto the cards, or serves them itself."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from gpufleet.memory import estimate
from gpufleet.plan import BoxPlan, Instance
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import by_vllm, failed, mapping, on_gpus

# Shards of a checkpoint whose files are not known here: save_pretrained's default, 5 GB.
SHARD_MIB = 4769
# Beside the shards, for the processes themselves (field-problems 53).
SPARE_MIB = 8192
# NCCL's and vLLM's buffers between the processes of an instance.
SHM_MIB = 1024
GIB = 1024
MIB = 1 << 20
STEP = 1024  # tokens; a remedy names a round length
ANY_MIB = 1 << 20  # a card that holds everything: of an estimate for a processor only the KV cache counts
LARGE_ON_CPU_MIB = 8192  # at 40 GB/s, two channels of DDR4, 5 tokens a second


@rule(
    "GF403",
    "host-memory",
    level="warning",
    source="field-problems 53: memory and swap of at least the largest shard × TP + 8 GB",
    remedy="More swap, or more memory.",
)
def host_memory(plan: BoxPlan) -> Said:
    """Each process of an instance reads a shard of the checkpoint through the host's memory. Too little of it ends in
    `Failed core proc(s): {}` without any reason. Where the files of a model are not known, a shard counts as 5 GB, or
    as the whole model if that is less."""
    found = plan.facts.get("memory") or {}
    if not found.get("total_mib"):
        return
    have = found["total_mib"] + (found.get("swap_mib") or 0)
    for instance in on_gpus(plan):
        shard = _largest_shard(instance)
        need = shard * max(len(instance.gpus), 1) + SPARE_MIB
        if shard and have < need:
            yield (
                f"{instance.name}: the host has {have} MiB of memory and swap, loading it takes about {need} MiB",
                f"add {-(-(need - have) // GIB)} GiB of swap (fallocate, mkswap, swapon, /etc/fstab)",
            )


def _largest_shard(instance: Instance) -> int:
    """MiB, 0 when nothing is known."""
    files = [file.size >> 20 for name, file in instance.model.source.files.items() if name.endswith(".safetensors")]
    shape = instance.model.architecture
    if files:
        return max(files)
    return min(shape.weights_mib, SHARD_MIB) if shape else 0


@rule(
    "GF404",
    "shm-small",
    level="warning",
    source="field-problems 50; NCCL: shared memory between processes",
    remedy="A larger /dev/shm; remove files that were left there.",
)
def shm_small(plan: BoxPlan) -> Said:
    """Processes of one instance exchange data by /dev/shm, and KV offloading keeps its cache there. When it is full,
    `cudaHostRegister` fails with `invalid argument`, or NCCL with a bus error."""
    free, total = plan.facts.get("shm_free_mib"), plan.facts.get("shm_mib")
    if free is None or failed(plan, "hardware"):
        return
    for instance in on_gpus(plan):
        need = (SHM_MIB if len(instance.gpus) > 1 else 0) + _offload_mib(instance.args)
        if free < need:
            left = f" of {total}" if total else ""
            yield (
                f"{instance.name}: /dev/shm has {free} MiB free{left}, about {need} MiB are needed",
                "remove /dev/shm/vllm_offload_*.mmap of services that are gone, or mount -o remount,"
                f"size={need * 2}M /dev/shm",
            )


def _offload_mib(args: Mapping[str, Any]) -> int:
    """What `kv-offloading-size` (GiB) keeps on the host."""
    size = args.get("kv-offloading-size")
    return int(size * GIB) if isinstance(size, int | float) and not isinstance(size, bool) else 0


def _lmcache_mib(instance: Instance) -> int:
    """What LMCache inside the engine pins on the host for each card: its variable is in GiB."""
    connector = mapping(instance, "kv-transfer-config").get("kv_connector")
    given = instance.env.get("LMCACHE_MAX_LOCAL_CPU_SIZE", "")
    inside = isinstance(connector, str) and connector.startswith("LMCacheConnector")
    return int(float(given) * GIB) if inside and re.fullmatch(r"\d{1,6}(\.\d+)?", given) else 0


@rule(
    "GF405",
    "offload-beyond-memory",
    level="error",
    source="vLLM pins the memory it offloads to; what is pinned is never swapped",
    remedy="A smaller `kv-offloading-size` or `cpu-offload-gb`.",
)
def offload_beyond_memory(plan: BoxPlan) -> Said:
    """KV cache or weights are to be kept in more memory than the host has."""
    total = (plan.facts.get("memory") or {}).get("total_mib")
    for instance in by_vllm(plan):
        weights = instance.args.get("cpu-offload-gb")
        each = int(weights * GIB) if isinstance(weights, int | float) and not isinstance(weights, bool) else 0
        each += _lmcache_mib(instance)
        need = _offload_mib(instance.args) + each * max(len(instance.gpus), 1)
        if total and need and need > total:
            yield (
                f"{instance.name} is to keep {need} MiB on the host, which has {total} MiB",
                "lower kv-offloading-size, cpu-offload-gb or LMCACHE_MAX_LOCAL_CPU_SIZE (GiB)",
            )


@rule(
    "GF406",
    "overcommit",
    level="warning",
    source="field-problems 55; Linux: Documentation/mm/overcommit-accounting",
    remedy="`host.overcommit_memory`: `1`.",
)
def overcommit(plan: BoxPlan) -> Said:
    """The kernel refuses large mappings: with `vm.overcommit_memory` 2 those of any engine, with 0 those of a KV cache
    that is offloaded to the host."""
    mode = plan.facts.get("overcommit_memory")
    if plan.settings.host.overcommit_memory is not None:
        mode = plan.settings.host.overcommit_memory
    for instance in on_gpus(plan):
        if mode == 2 or (mode == 0 and _offload_mib(instance.args)):
            yield (
                f"{instance.name}: vm.overcommit_memory is {mode}",
                "host.overcommit_memory: 1",
            )


@rule(
    "GF409",
    "large-on-cpu",
    level="warning",
    source="what a token costs: all weights it uses are read from memory once",
    remedy="A box with GPUs for this model, or a small one here.",
)
def large_on_cpu(plan: BoxPlan) -> Said:
    """A large model on a processor: each token reads its weights from the host's memory, which gives a token or a few
    in a second. An error when it does not even fit there.
    """
    total = (plan.facts.get("memory") or {}).get("total_mib")
    for instance in plan.instances:
        shape = instance.model.architecture
        if shape is None or "cpu" not in instance.stack.arch:
            continue
        where = f"{instance.name}: {shape.weights_mib >> 10} GiB of weights on a CPU"
        if total and shape.weights_mib > total:
            yield f"{where}, which has {total >> 10} GiB of memory", "serve it on a box with GPUs", "error"
        elif shape.weights_mib > LARGE_ON_CPU_MIB:
            yield f"{where}: a token or a few in a second", "serve it on a box with GPUs"


@rule(
    "GF410",
    "cpu-cache-too-small",
    level="error",
    source="vLLM: a request of max-model-len tokens must fit into the KV cache, or the engine does not start",
    remedy="A shorter `max-model-len`, or a larger `kv-cache-memory-bytes`.",
)
def cpu_cache_too_small(plan: BoxPlan) -> Said:
    """On a processor the KV cache is as large as `kv-cache-memory-bytes` says, and one request of `max-model-len`
    tokens does not fit into it. Nothing is said where `VLLM_CPU_KVCACHE_SPACE` sets the size."""
    for instance in plan.instances:
        shape, size = instance.model.architecture, instance.args.get("kv-cache-memory-bytes")
        if shape is None or "cpu" not in instance.stack.arch or "VLLM_CPU_KVCACHE_SPACE" in instance.env:
            continue
        if not isinstance(size, int) or isinstance(size, bool):
            continue
        found = estimate(shape, ANY_MIB, 1, instance.args)
        if found.concurrency < 1:
            shorter = found.longest_len // STEP * STEP
            remedies = [f'serve_args = {{"max-model-len": {shorter}}}'] if shorter else []
            need = math.ceil(size / found.concurrency / MIB / GIB) if found.concurrency else 0
            remedies += [f'serve_args = {{"kv-cache-memory-bytes": {need << 30}}}'] if need else []
            yield (
                f"{instance.name}: {found.max_model_len} tokens are asked for, {found.longest_len} fit into "
                f"{size // MIB} MiB of KV cache",
                "; or ".join(remedies) or "a larger kv-cache-memory-bytes",
            )
