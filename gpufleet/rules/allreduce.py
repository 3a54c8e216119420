"""Rules about custom all-reduce: vLLM's own exchange between cards, which fails in other ways on each kind of box."""

from __future__ import annotations

from gpufleet.plan import BoxPlan, Instance
from gpufleet.rules.base import Level, Said, rule
from gpufleet.rules.look import all_nvlink, archs, by_vllm, cards, flag, graphs_mode, is_geforce, states

OFF = 'serve_args = {"disable-custom-all-reduce": True}'
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def _on(plan: BoxPlan) -> list[Instance]:
    """Instances of several cards with custom all-reduce; it is on unless it is switched off."""
    return [
        instance
        for instance in by_vllm(plan)
        if len(instance.gpus) > 1 and flag(instance, "disable-custom-all-reduce") is not True
    ]


@rule(
    "GF305",
    "custom-all-reduce",
    level="warning",
    source="field-problems 29; weicj PR 69 and 108, 1Cat-vLLM 430, club-3090 922 and 1332; box C of the recipes",
    remedy='`serve_args = {"disable-custom-all-reduce": True}`. To try it: switch it on for one box, and compare '
    "answers, tok/s and Xid with those before.",
)
def custom_all_reduce(plan: BoxPlan) -> Said:
    """Custom all-reduce with CUDA graphs is proven only on a full mesh of NVLink with an engine made for it. On GeForce
    cards workers die while graphs are captured, or a patched P2P gives wrong data. On V100s without NVLink between all
    of a group it ends in Xid 62 and 0.1 tok/s: an error.

    Information only: pairs of 2080 Ti with the stacks made for them, which are known to run so; and cards that have no
    P2P, where vLLM leaves it off by itself (a warning when it was switched on by name).
    """
    for instance in _on(plan):
        found, own = archs(plan, instance), cards(plan, instance)
        reads = states(plan, instance, "p2p_read")
        if "sm70" in found and not all_nvlink(plan, instance):
            yield f"{instance.name}: custom all-reduce on V100s without NVLink between all of them", OFF, "error"
        elif not all(is_geforce(gpu) for gpu in own) or not own:
            continue
        elif found == {"sm75"} and "fp8-kv-sm75" in instance.stack.provides and len(own) == 2:
            yield f"{instance.name}: custom all-reduce is on, as on the reference boxes", f"if it fails: {OFF}", "info"
        elif reads and "OK" not in reads and not all_nvlink(plan, instance):
            level: Level = "warning" if flag(instance, "disable-custom-all-reduce") is False else "info"
            yield f"{instance.name}: custom all-reduce is on, and the cards have no P2P for it", OFF, level
        else:
            yield f"{instance.name}: custom all-reduce is on for {own[0]['name']}", OFF


@rule(
    "GF308",
    "all-reduce-expandable-segments",
    level="error",
    source="box C of the recipes; vLLM 42609, syv-ai 163",
    remedy='`disable-custom-all-reduce`, or `serve_env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}`.',
)
def all_reduce_expandable_segments(plan: BoxPlan) -> Said:
    """Custom all-reduce, CUDA graphs and `expandable_segments:True` together: workers die without a word while graphs
    are captured, and are started again for ever. Any two of the three work."""
    for instance in _on(plan):
        segments = any("expandable_segments:true" in instance.env.get(name, "").lower() for name in ALLOCATOR)
        if segments and graphs_mode(instance) != "NONE":
            name = next(name for name in ALLOCATOR if instance.env.get(name))
            yield (
                f"{instance.name}: custom all-reduce, CUDA graphs and expandable_segments:True",
                f'{OFF}, or serve_env = {{"{name}": "expandable_segments:False"}}',
            )
