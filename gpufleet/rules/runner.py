"""Rules about what vLLM's model runners can do, and cannot do together."""

from __future__ import annotations

from gpufleet.plan import BoxPlan, Instance
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import by_vllm, flag, from_stack, vllm_version


def _second(instance: Instance) -> bool:
    return instance.env.get("VLLM_USE_V2_MODEL_RUNNER") == "1"


def _hybrid(instance: Instance) -> bool:
    """Whether the model has recurrent layers, whose states are cached with the KV."""
    shape = instance.model.architecture
    return shape is not None and bool(shape.layers.linear_attention)


@rule(
    "GF516",
    "runner-sync-mode",
    level="warning",
    source="vLLM 0.27.1: the sync mode is in the first model runner only",
    remedy="One of the two: `VLLM_USE_V2_MODEL_RUNNER=0`, or no `VLLM_SM75_SPEC_SYNC_MODE`.",
)
def runner_sync_mode(plan: BoxPlan) -> Said:
    """`VLLM_SM75_SPEC_SYNC_MODE` is read by vLLM's first model runner only; with `VLLM_USE_V2_MODEL_RUNNER=1` it does
    nothing. Information where the stack's own page sets both: the reference boxes run so."""
    for instance in by_vllm(plan):
        if instance.env.get("VLLM_SM75_SPEC_SYNC_MODE") and _second(instance):
            both = ("VLLM_SM75_SPEC_SYNC_MODE", "VLLM_USE_V2_MODEL_RUNNER")
            shipped = all(from_stack(instance, name) for name in both)
            yield (
                f"{instance.name}: VLLM_SM75_SPEC_SYNC_MODE has no effect with VLLM_USE_V2_MODEL_RUNNER=1",
                'serve_env = {"VLLM_USE_V2_MODEL_RUNNER": "0"}, if the sync mode is wanted',
                "info" if shipped else "warning",
            )


@rule(
    "GF518",
    "v2-runner-hybrid-cache",
    level="error",
    source="vLLM 0.24.0, config/vllm.py: Model Runner V2 has not yet supported mamba_cache_mode='align'",
    remedy="`VLLM_USE_V2_MODEL_RUNNER=0`, or no prefix caching, or vLLM 0.27.",
)
def v2_runner_hybrid_cache(plan: BoxPlan) -> Said:
    """vLLM 0.24's second model runner has no prefix caching for models with recurrent layers, and does not start."""
    for instance in by_vllm(plan):
        cached = flag(instance, "enable-prefix-caching") is True
        if _second(instance) and _hybrid(instance) and cached and vllm_version(instance.stack)[:2] == (0, 24):
            yield (
                f"{instance.name}: prefix caching with recurrent layers and VLLM_USE_V2_MODEL_RUNNER=1 on vLLM 0.24",
                'serve_env = {"VLLM_USE_V2_MODEL_RUNNER": "0"}, or serve_args = {"enable-prefix-caching": False}',
            )


@rule(
    "GF519",
    "hybrid-cache-without-chunks",
    level="error",
    source="vLLM 0.24.0 and 0.27.1: mamba_cache_mode align needs chunked prefill",
    remedy="`enable-chunked-prefill`, or no prefix caching.",
)
def hybrid_cache_without_chunks(plan: BoxPlan) -> Said:
    """Prefix caching for a model with recurrent layers needs chunked prefill, which is switched off."""
    for instance in by_vllm(plan):
        cached, chunked = flag(instance, "enable-prefix-caching"), flag(instance, "enable-chunked-prefill")
        if _hybrid(instance) and cached is True and chunked is False:
            yield (
                f"{instance.name}: prefix caching without chunked prefill",
                'serve_args = {"enable-chunked-prefill": True}, or {"enable-prefix-caching": False}',
            )
