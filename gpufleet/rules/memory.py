"""Rules about the memory of the cards."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gpufleet import replacing
from gpufleet.dialect import DIALECTS
from gpufleet.fit import holds, memory_of
from gpufleet.plan import BoxPlan, Instance
from gpufleet.rules.base import Level, Said, rule
from gpufleet.rules.look import archs, by_vllm, cards, gpus, on_gpus

GIB = 1024
MIB = 1 << 20
SHARE = "gpu-memory-utilization"
ENTRIES = "cache-max-entry-count"
STEP = 1024  # tokens; a remedy names a round length


@rule(
    "GF401",
    "model-does-not-fit",
    level="error",
    source="the estimate of memory; box C of the recipes: two 27 B on two cards of 24 GB",
    remedy="A shorter `max-model-len`, an FP8 KV cache, more GPUs to an instance, fewer instances.",
)
def model_does_not_fit(plan: BoxPlan) -> Said:
    """Weights, graphs and one request of `max-model-len` tokens take more than the engine may have of each card. It
    would not start."""
    for instance in on_gpus(plan):
        found = instance.memory
        if found is None or found.concurrency >= 1 or len(instance.gpus) < instance.size:
            continue
        fit = min(found.longest_len, found.max_model_len)
        card = f"{len(instance.gpus)} × {found.gpu_mib} MiB"
        if fit:
            message = f"{instance.name}: {found.max_model_len} tokens are asked for, {fit} fit on {card}"
        else:
            weights = found.weights_mib + found.mtp_mib + found.vision_mib
            work = found.activations_mib + found.graphs_mib
            message = (
                f"{instance.name} does not fit on {card}: weights take {weights} MiB of each, working memory {work} "
                f"MiB, {found.budget_mib} MiB may be used"
            )
        yield message, "; or ".join(_remedies(plan, instance, fit))


def _remedies(plan: BoxPlan, instance: Instance, fit: int) -> list[str]:
    remedies = []
    flag = DIALECTS[instance.stack.engine].max_model_len
    if fit >= STEP:
        remedies.append(f'serve_args = {{"{flag}": {fit // STEP * STEP}}}')
    own = cards(plan, instance)
    dtype = smaller_kv(instance, archs(plan, instance))
    args = {**instance.args, "kv-cache-dtype": dtype}
    smaller = memory_of(instance.model, instance.stack, own, args) if dtype else None
    if smaller and smaller.longest_len > fit and smaller.longest_len >= STEP:
        length = "" if smaller.fits else f', "{flag}": {smaller.longest_len // STEP * STEP}'
        remedies.append(f'serve_args = {{"kv-cache-dtype": "{dtype}"{length}}}')
    kind = [gpu for gpu in gpus(plan) if gpu["compute_capability"] == own[0]["compute_capability"]]
    more = len(instance.gpus) * 2
    roomy = [gpu for gpu in kind if holds(instance.model, instance.stack, [gpu], more, instance.args)]
    if len(roomy) >= more:
        instances = "one instance" if len(roomy) // more == 1 else f"{len(roomy) // more} instances at most"
        remedies.append(f"tensor_parallel_size = {more} ({instances})")
    return remedies or ["serve a smaller model or a smaller quantisation here, or put it on larger cards"]


def smaller_kv(instance: Instance, found: Collection[str]) -> str | None:
    """A type of one byte for the KV cache that cards, stack and checkpoint take; None without one, or if in use.

    + found: the architectures of its cards
    """
    provides, shape = instance.stack.provides, instance.model.architecture
    if instance.args.get("kv-cache-dtype", "auto") not in ("auto", "float16", "bfloat16") or not _by_share(instance):
        return None
    if "sm70" in found:
        scaled = shape is not None and shape.quantization == "fp8"
        return "fp8_e5m2" if "fp8-kv-sm70" in provides and not scaled else None
    if "sm86" in found and shape is not None and shape.quantization == "compressed-tensors":
        return "int8_per_token_head"  # GF542 refuses fp8
    return None if "sm75" in found and "fp8-kv-sm75" not in provides else "fp8"


@rule(
    "GF408",
    "memory-share-too-large",
    level="error",
    source="vLLM: Free memory on device is less than desired GPU memory utilization",
    remedy="A lower `gpu-memory-utilization`, or a smaller `kv-cache-memory-bytes`.",
)
def memory_share_too_large(plan: BoxPlan) -> Said:
    """The engine is to have more of a card than is left beside the driver's part and its own CUDA context; it asks
    before it loads anything, and ends."""
    for instance in on_gpus(plan):
        found = instance.memory
        share = instance.args.get(SHARE)
        absurd = isinstance(share, int | float) and not 0 < share <= 1 and _by_share(instance)  # GF407 says so
        if found is not None and instance.gpus and not found.starts and not absurd:
            room = found.usable_mib - found.context_mib
            if instance.args.get("kv-cache-memory-bytes"):
                less = found.kv_mib - (found.budget_mib - room)
                remedy = f'serve_args = {{"kv-cache-memory-bytes": {max(less, 0) * MIB}}}'
            elif _by_share(instance):
                remedy = (
                    f'serve_args = {{"{SHARE}": {int(room / found.usable_mib * 100) / 100}}}'
                    if room * 100 >= found.usable_mib
                    else "such a card holds nothing: put it on larger cards"
                )
            else:
                remedy = _fewer_entries(instance.args.get(ENTRIES, 0.8), found.kv_mib, found.budget_mib - room)
            yield f"{instance.name} wants {found.budget_mib} MiB of each card, {room} MiB are there", remedy


@rule(
    "GF402",
    "gpu-memory-used",
    level="error",
    source="field-problems 48 and 54; vLLM: Free memory on device is less than desired GPU memory utilization",
    remedy="Stop what runs there, or lower `gpu-memory-utilization`.",
)
def gpu_memory_used(plan: BoxPlan) -> Said:
    """Other programs have so much of a card that the engine cannot take its share: a server started by hand, or a
    worker that outlived its service. What a unit has that the instance takes the place of (`replaces`) counts as free.
    A warning while another service of gpufleet runs on the box, since it may be one of that; nothing is said while the
    instance itself runs."""
    active = _services(plan)
    for instance in on_gpus(plan):
        for gpu in cards(plan, instance) if instance.name not in active else []:
            stopped = replacing.stopped_for(plan, instance)
            foreign = [
                item
                for item in gpu.get("processes") or []
                if not _is_ours(item, active) and item.get("unit") not in stopped
            ]
            used = sum(item.get("memory_mib") or 0 for item in foreign)
            size = gpu.get("memory_mib")
            budget = _budget(instance, size)
            if size and budget and used and size - used < budget:
                who = max(foreign, key=lambda item: item.get("memory_mib") or 0)
                name, unit = who.get("name") or "a program", who.get("unit") or ""
                place = replacing.offer(instance, unit, name)
                free = size - used
                level: Level = "warning" if active else "error"
                less = (
                    f', or serve_args = {{"{SHARE}": {max(free - 256, 0) / size:.2f}}}' if _by_share(instance) else ""
                )
                yield (
                    f"{instance.name} wants {budget} MiB of GPU {gpu['index']}, {free} MiB are left by {name} "
                    f"(pid {who.get('pid')}{', ' if unit else ''}{unit})",
                    f"stop it{place}{less}",
                    level,
                )


def _services(plan: BoxPlan) -> dict[str, int | None]:
    """The main process of each of gpufleet's services that run; their workers have other pids, which nobody tells."""
    services = {name: item.get("service") or {} for name, item in (plan.facts.get("instances") or {}).items()}
    running = ("active", "activating", "reloading", "deactivating")
    return {name: service.get("pid") for name, service in services.items() if service.get("active") in running}


def _is_ours(process: Mapping[str, Any], active: Mapping[str, int | None]) -> bool:
    """Whether it belongs to a service that runs: by its pid, or by the name that vLLM's workers give themselves."""
    return process.get("pid") in active.values() or (bool(active) and str(process.get("name")).startswith("VLLM::"))


def _fewer_entries(share: Any, kv_mib: int, over_mib: int) -> str:
    """lmdeploy's share of what is free after loading, so that its cache is smaller by so much."""
    if not isinstance(share, int | float) or share > 1 or kv_mib <= over_mib:
        return f"lower {ENTRIES}"
    return f'serve_args = {{"{ENTRIES}": {int(share * (kv_mib - over_mib) / kv_mib * 100) / 100}}}'


def _by_share(instance: Instance) -> bool:
    """Whether the engine takes a share of the card, rather than of what is free of it."""
    return instance.stack.engine == "vllm"


def _budget(instance: Instance, size: int | None) -> int | None:
    if instance.memory:
        return instance.memory.budget_mib
    share = instance.args.get(SHARE, 0.9)  # vLLM's default
    return int(size * share) if size and isinstance(share, int | float) and _by_share(instance) else None


@rule(
    "GF407",
    "memory-share",
    level="error",
    source="vLLM: gpu-memory-utilization is a share of the card",
    remedy="A number above 0 and up to 1, such as `0.92`.",
)
def memory_share(plan: BoxPlan) -> Said:
    """`gpu-memory-utilization` is no share: it is written as percent, or above 1."""
    for instance in by_vllm(plan):
        share = instance.args.get(SHARE)
        if isinstance(share, int | float) and not isinstance(share, bool) and not 0 < share <= 1:
            right = f"{share / 100:.2f}" if 1 < share <= 100 else "0.9"
            yield f"{instance.name}: gpu-memory-utilization is {share}", f"set it to {right}"
