"""Rules about which cards an instance has."""

from __future__ import annotations

from gpufleet.fit import holds, memory_of
from gpufleet.hardware import CARD_SHARE
from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import by_vllm, cards, listed, on_gpus
from gpufleet.topology import crosses_islands, islands, link_between, nvlinks, unequal_memory


@rule(
    "GF311",
    "too-few-gpus",
    level="error",
    source="the plan",
    remedy="A lower `tensor_parallel_size`, fewer `instances` or models.",
)
def too_few_gpus(plan: BoxPlan) -> Said:
    """An instance is to have more GPUs of one kind than are free."""
    for instance in on_gpus(plan):
        if len(instance.gpus) < instance.size:
            wanted = "1 GPU" if instance.size == 1 else f"{instance.size} GPUs of one kind"
            free = len(instance.gpus)
            yield (
                f"{instance.name} needs {wanted}, {free or 'none'} {'are' if free > 1 else 'is'} free",
                "lower tensor_parallel_size or instances, or serve fewer models here",
            )


@rule(
    "GF312",
    "no-stack-for-cards",
    level="error",
    source="the plan",
    remedy="Name a `stack`, or serve the model on another box.",
)
def no_stack_for_cards(plan: BoxPlan) -> Said:
    """No stack of the catalogue is the default for any card of the box, and no setting names one."""
    for item in plan.unplaced:
        yield f"{item.model} has no place: {item.reason}", item.remedy


@rule(
    "GF313",
    "heads-do-not-divide",
    level="error",
    source="tensor parallelism splits attention by heads (vLLM refuses other sizes at start)",
    remedy="A `tensor_parallel_size` that divides the model's heads.",
)
def heads_do_not_divide(plan: BoxPlan) -> Said:
    """The model's attention heads, or its heads for keys and values, cannot be shared out evenly among so many GPUs."""
    for instance in on_gpus(plan):
        shape = instance.model.architecture
        if shape is None:
            continue
        size, heads, kv = instance.size, shape.heads, shape.kv_heads
        if heads % size or (kv % size and size % kv):
            sizes = [n for n in range(1, 17) if heads % n == 0 and (kv % n == 0 or n % kv == 0)]
            yield (
                f"{instance.name}: {heads} heads and {kv} key-value heads do not divide by {size} GPUs",
                f"set tensor_parallel_size to one of {', '.join(map(str, sizes))}",
            )


@rule(
    "GF314",
    "group-crosses-islands",
    level="warning",
    source="field-problems 33: TP 4 over two pairs about 90 tok/s, twice TP 2 152",
    remedy="A `tensor_parallel_size` of at most an island's GPUs, and several `instances`.",
)
def group_crosses_islands(plan: BoxPlan) -> Said:
    """An instance is spread over several islands of NVLink: every step waits for the slow link between them. One
    instance on each island is faster; information when the model does not fit there."""
    links = plan.facts.get("links") or {}
    for instance in on_gpus(plan):
        own = cards(plan, instance)
        found = islands(own, links)
        largest = max((len(island) for island in found), default=0)
        if largest < 2 or not crosses_islands(instance.gpus, found):
            continue
        if all(nvlinks(link_between(links, a, b)) for a in instance.gpus for b in instance.gpus if a < b):
            continue
        size = next(n for n in (8, 4, 2) if n <= largest)
        groups = " and ".join(f"({', '.join(map(str, island))})" for island in found)
        message = f"{instance.name} on GPUs {listed(instance.gpus)} crosses islands {groups} by {instance.link}"
        if holds(instance.model, instance.stack, own, size, instance.args):
            room = sum(len(island) // size for island in found)
            instances = "1 instance has" if room == 1 else f"{room} instances have"
            yield message, f"set tensor_parallel_size to {size}: {instances} room there"
        else:
            least = min(own, key=lambda gpu: gpu.get("memory_mib") or 0)
            found_memory = memory_of(instance.model, instance.stack, [least] * size, instance.args)
            shorter = found_memory is not None and found_memory.longest_len > 0
            remedy = "so: a shorter max-model-len would let them" if shorter else "at any length: nothing can be done"
            yield message, f"{size} GPUs do not hold {instance.model.name} {remedy}", "info"


@rule(
    "GF315",
    "unequal-memory",
    level="warning",
    source="field-problems 35: the smallest card decides for all",
    remedy="Cards of one size in an instance.",
)
def unequal_memory_in_group(plan: BoxPlan) -> Said:
    """The cards of an instance differ in memory; of each only as much is used as the smallest has. Information where
    that is next to nothing, as between a 3090 and a 3090 Ti."""
    for instance in on_gpus(plan):
        own = cards(plan, instance)
        if all(gpu.get("memory_mib") for gpu in own) and unequal_memory(own, instance.gpus):
            said = ", ".join(f"GPU {gpu['index']} {gpu['memory_mib']} MiB" for gpu in own)
            sizes = [gpu["memory_mib"] for gpu in own]
            if max(sizes) - min(sizes) <= CARD_SHARE * max(sizes):
                yield f"{instance.name}: {said}", "nothing has to be done: it is next to the same", "info"
            else:
                remedy = "give the larger cards to another instance, by a lower tensor_parallel_size or fewer instances"
                yield f"{instance.name}: {said}", remedy


@rule(
    "GF316",
    "device-ids-beyond",
    level="error",
    source="vLLM: --device-ids are indexes within CUDA_VISIBLE_DEVICES",
    remedy="Leave `device-ids` out: an instance sees its own cards only, numbered from 0.",
)
def device_ids_beyond(plan: BoxPlan) -> Said:
    """`device-ids` names a card that the instance does not see: they count within CUDA_VISIBLE_DEVICES, from 0."""
    for instance in by_vllm(plan):
        value = instance.args.get("device-ids")
        words = str(value).split(",") if isinstance(value, str | int) else value if isinstance(value, list) else []
        beyond = [word for word in words if not str(word).strip().isdigit() or int(word) >= len(instance.gpus)]
        if beyond and instance.gpus:
            right = ",".join(str(number) for number in range(len(instance.gpus)))
            yield (
                f"{instance.name}: device-ids {value}, and it sees {len(instance.gpus)} GPUs",
                f"take device-ids out, or set it to {right!r}",
            )
