"""Rules about number formats: of the KV cache, of weights, of what is computed with."""

from __future__ import annotations

from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import archs, by_vllm, fp8_kv, number, vllm_version

FP8_REFUSED_SINCE = (0, 24)
# What `quantization` may say, and for checkpoints of which kind that is right. Others are not judged.
SERVES = {
    "awq": {"awq"},
    "awq_marlin": {"awq"},
    "gptq": {"gptq"},
    "gptq_marlin": {"gptq"},
    "moe_wna16": {"awq", "gptq"},
    "fp8": {"fp8"},
    "compressed-tensors": {"compressed-tensors", "nvfp4"},
    "modelopt_fp4": {"nvfp4"},
}


@rule(
    "GF540",
    "fp8-kv-sm75",
    level="error",
    source="field-problems 21; vLLM 47549 and PR 45375",
    remedy="A stack that provides fp8-kv-sm75; or `kv-cache-dtype` auto.",
)
def fp8_kv_sm75(plan: BoxPlan) -> Said:
    """vLLM since 0.24 refuses an FP8 KV cache on SM75 (`native FP8 (fp8e4nv) requires SM89+`): the one way to it,
    FlashInfer, is shut below 8.0. A patch opens it."""
    for instance in by_vllm(plan):
        dtype, stack = fp8_kv(instance), instance.stack
        refused = vllm_version(stack) >= FP8_REFUSED_SINCE and "fp8-kv-sm75" not in stack.provides
        if dtype and refused and "sm75" in archs(plan, instance):
            yield (
                f"{instance.name}: {stack.name} refuses the KV cache {dtype} on SM75",
                'use a stack that provides fp8-kv-sm75, or serve_args = {"kv-cache-dtype": "auto"}',
            )


@rule(
    "GF541",
    "fp8-kv-sm70",
    level="error",
    source="field-problems 42; 1Cat-vLLM's documentation",
    remedy="`kv-cache-dtype` auto; or fp8_e5m2 with a stack that provides fp8-kv-sm70.",
)
def fp8_kv_sm70(plan: BoxPlan) -> Said:
    """On SM70 there is no e4m3 (which `fp8` is, too). e5m2 goes with 1Cat-vLLM, and not with FP8 checkpoints, whose
    scales it would need."""
    auto = 'serve_args = {"kv-cache-dtype": "auto"}'
    for instance in by_vllm(plan):
        dtype, shape = fp8_kv(instance), instance.model.architecture
        if not dtype or "sm70" not in archs(plan, instance):
            continue
        provided = "fp8-kv-sm70" in instance.stack.provides
        if dtype != "fp8_e5m2":
            more = ', or "fp8_e5m2"' if provided else ""
            yield f"{instance.name}: SM70 has no KV cache of {dtype}", auto + more
        elif not provided:
            yield f"{instance.name}: {instance.stack.name} has no KV cache of {dtype} on SM70", auto
        elif shape and shape.quantization == "fp8":
            yield f"{instance.name}: a KV cache of {dtype} does not go with an FP8 checkpoint", auto


@rule(
    "GF542",
    "fp8-kv-compressed-tensors",
    level="error",
    source="field-problems 42; club-3090's FAQ",
    remedy="`kv-cache-dtype` int8_per_token_head, or auto.",
)
def fp8_kv_compressed_tensors(plan: BoxPlan) -> Said:
    """On SM86 an FP8 KV cache is refused for a compressed-tensors checkpoint."""
    for instance in by_vllm(plan):
        dtype, shape = fp8_kv(instance), instance.model.architecture
        if dtype and shape and shape.quantization == "compressed-tensors" and "sm86" in archs(plan, instance):
            yield (
                f"{instance.name}: no KV cache of {dtype} for a compressed-tensors checkpoint on SM86",
                'serve_args = {"kv-cache-dtype": "int8_per_token_head"}',
            )


@rule(
    "GF543",
    "quantization-contradicts",
    level="error",
    source="field-problems 43",
    remedy="No `quantization`: the engine reads it from the checkpoint.",
)
def quantization_contradicts(plan: BoxPlan) -> Said:
    """`quantization` names another kind than the checkpoint's config.json has."""
    for instance in by_vllm(plan):
        given, shape = instance.args.get("quantization"), instance.model.architecture
        right = SERVES.get(given) if isinstance(given, str) else None
        if shape and right and shape.quantization not in right | {"none"}:
            yield (
                f"{instance.name}: quantization is {given}, the checkpoint is {shape.quantization}",
                'take it out: serve_args = {"quantization": None}',
            )


@rule(
    "GF544",
    "awq-slow-kernel",
    level="warning",
    source="field-problems 43: 3.9 tok/s in place of 30.5",
    remedy="`awq_marlin`, or no `quantization` at all.",
)
def awq_slow_kernel(plan: BoxPlan) -> Said:
    """`quantization: awq` takes the old kernel for a dense model on SM75 and newer cards, a tenth as fast as Marlin's.
    For a mixture of experts it may be the right one."""
    for instance in by_vllm(plan):
        shape, found = instance.model.architecture, archs(plan, instance)
        dense = shape is not None and shape.quantization == "awq" and not shape.experts
        if instance.args.get("quantization") == "awq" and dense and found and "sm70" not in found:
            yield f"{instance.name}: quantization awq is the slow kernel", 'serve_args = {"quantization": "awq_marlin"}'


@rule(
    "GF547",
    "attention-backend",
    level="error",
    source="vLLM 0.27.1, v1/attention/backends; 1Cat-vLLM's documentation",
    remedy="No `attention-backend`: the stack's page names the one that its cards need, or the engine chooses.",
)
def attention_backend(plan: BoxPlan) -> Said:
    """`attention-backend` names one that the cards do not have, or that has no FP8 KV cache there: FLASH_ATTN begins at
    SM80, FLASH_ATTN_V100 is for SM70, which has TRITON_ATTN besides; TRITON_ATTN has FP8 from SM89 on, FLEX_ATTENTION
    nowhere. The engine does not start."""
    for instance in by_vllm(plan):
        backend, dtype, found = instance.args.get("attention-backend"), fp8_kv(instance), archs(plan, instance)
        if not isinstance(backend, str) or not found:
            continue
        name, out = backend.upper(), 'serve_args = {"attention-backend": None}'
        volta, least = "sm70" in found, min(int(arch[2:]) for arch in found)
        if name != "FLASH_ATTN_V100" and volta and name != "TRITON_ATTN":
            yield (
                f"{instance.name}: {backend} does not run on SM70",
                'serve_args = {"attention-backend": "FLASH_ATTN_V100"}, or "TRITON_ATTN"',
            )
        elif (name == "FLASH_ATTN" and least < 80) or (name == "FLASH_ATTN_V100" and not volta):
            yield f"{instance.name}: {backend} does not run on SM{least}", out
        elif dtype and ((name == "TRITON_ATTN" and least < 89) or name == "FLEX_ATTENTION"):
            yield (
                f"{instance.name}: {backend} has no KV cache of {dtype} on SM{least}",
                f'{out}, or {{"kv-cache-dtype": "auto"}}',
            )


@rule(
    "GF545",
    "bfloat16-before-ampere",
    level="error",
    source="vLLM: Bfloat16 is only supported on GPUs with compute capability of at least 8.0",
    remedy="`dtype` half.",
)
def bfloat16_before_ampere(plan: BoxPlan) -> Said:
    """`dtype: bfloat16` on cards that have no bfloat16, SM70 and SM75."""
    for instance in by_vllm(plan):
        old = sorted(archs(plan, instance) & {"sm70", "sm75"})
        if instance.args.get("dtype") == "bfloat16" and old:
            yield f"{instance.name}: {old[0]} has no bfloat16", 'serve_args = {"dtype": "half"}'


@rule(
    "GF546",
    "context-beyond-model",
    level="error",
    source="vLLM: max_model_len is greater than the derived max_model_len",
    remedy="A `max-model-len` of at most the model's positions.",
)
def context_beyond_model(plan: BoxPlan) -> Said:
    """`max-model-len` is longer than the positions the model was made with. vLLM does not start, unless its rope is
    scaled by `hf-overrides` or `rope-scaling`."""
    for instance in by_vllm(plan):
        length, shape = number(instance.args.get("max-model-len")), instance.model.architecture
        scaled = any(instance.args.get(flag) for flag in ("hf-overrides", "rope-scaling"))
        allowed = instance.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1"
        if length and shape and length > shape.max_positions and not scaled and not allowed:
            yield (
                f"{instance.name}: max-model-len is {length}, the model has {shape.max_positions} positions",
                f'serve_args = {{"max-model-len": {shape.max_positions}}}',
            )
