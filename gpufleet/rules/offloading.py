"""Rules about a KV cache that goes beyond the cards: what it cannot be put together with."""

from __future__ import annotations

from gpufleet.plan import BoxPlan, Instance
from gpufleet.rules.allreduce import ALLOCATOR
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import by_vllm, mapping, vllm_version

CHECKED_SINCE = (0, 24)


def connected(instance: Instance) -> bool:
    """Whether vLLM keeps KV outside the cards, by itself or by a connector."""
    return instance.args.get("kv-offloading-size") is not None or bool(
        mapping(instance, "kv-transfer-config").get("kv_connector")
    )


@rule(
    "GF550",
    "offloading-hybrid-model",
    level="error",
    source="vLLM 0.27.1, config/vllm.py: connectors without SupportsHMA turn the hybrid KV cache manager off",
    remedy="The option native-offloading, or none.",
)
def offloading_hybrid_model(plan: BoxPlan) -> Said:
    """An option of the stack is for models whose every layer is attention. Gated-delta-net layers keep a state, which
    the connector does not; vLLM then ends at start."""
    for instance in plan.instances:
        shape, stack = instance.model.architecture, instance.stack
        names = [name for name in stack.chosen if not stack.options[name].hybrid]
        if names and shape is not None and shape.layers.linear_attention:
            yield (
                f"{instance.name}: {instance.model.name} has {shape.layers.linear_attention} layers with a state, "
                f"and the option {', '.join(names)} of {stack.name} is for models without",
                f"take {', '.join(names)} out of options",
            )


@rule(
    "GF551",
    "offloading-expandable-segments",
    level="error",
    source="vLLM 0.24.0 and newer, config/vllm.py: _verify_kv_transfer_compat",
    remedy='`serve_env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}`, or no offloading.',
)
def offloading_expandable_segments(plan: BoxPlan) -> Said:
    """vLLM refuses to start with KV kept outside the cards and `expandable_segments:True`: the allocator may give an
    address other memory, which the connector has pinned. The recipe of the pair of 3090 sets it."""
    for instance in by_vllm(plan):
        if vllm_version(instance.stack) < CHECKED_SINCE or not connected(instance):
            continue
        for name in ALLOCATOR:
            if "expandable_segments:true" in instance.env.get(name, "").lower():
                yield (
                    f"{instance.name}: KV offloading and {name}=expandable_segments:True",
                    f'serve_env = {{"{name}": "expandable_segments:False"}}, or take the offloading out',
                )
