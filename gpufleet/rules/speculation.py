"""Rules about speculative decoding by a model's MTP head."""

from __future__ import annotations

from gpufleet.plan import BoxPlan, Instance
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import by_vllm, mapping, number, speculative_tokens, uses_mtp, vllm_version

# Which family's head a method is for; `mtp` is any's. From vLLM's config/speculative.py.
FAMILIES = {
    "qwen3_5_mtp": ("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"),
    "qwen3_next_mtp": ("qwen3_next",),
    "deepseek_mtp": ("deepseek_v3", "deepseek_v32"),
    "glm4_moe_mtp": ("glm4_moe",),
    "mimo_mtp": ("mimo",),
    "ernie_mtp": ("ernie4_5_moe",),
}
OFF = 'serve_args = {"speculative-config": None}'
ON = 'serve_args = {"speculative-config": {"method": "mtp", "num_speculative_tokens": 1}}, or leave it'
HEADS_OWN = "say in `architecture.mtp` what the replaced head is: `gpufleet models add` with --mtp-head writes it"
# From 0.27 on any `*_mtp` is taken as `mtp`, with a warning in the log.
NAMES_MATTER_BEFORE = (0, 27)


def _with_mtp(plan: BoxPlan) -> list[Instance]:
    return [instance for instance in by_vllm(plan) if uses_mtp(instance)]


@rule(
    "GF520",
    "speculative-tokens",
    level="warning",
    source="vLLM refuses it at start",
    remedy="`num_speculative_tokens`: 1 to 3 for an MTP head.",
)
def speculative_tokens_missing(plan: BoxPlan) -> Said:
    """`speculative-config` has no `num_speculative_tokens`; without it no graphs are captured for the drafts, and most
    methods are refused at start."""
    for instance in by_vllm(plan):
        config = mapping(instance, "speculative-config")
        given = config.get("num_speculative_tokens")
        if config and not speculative_tokens(instance) and number(given) == given:  # of another kind: GF549 says it
            wrong = "has no num_speculative_tokens" if given is None else f"has num_speculative_tokens {given}"
            yield f"{instance.name}: speculative-config {wrong}", "set it (1 to 3 for an MTP head)"


@rule(
    "GF521",
    "mtp-without-tensors",
    level="error",
    source="field-problems 38; vLLM PR 35548",
    remedy="A checkpoint whose index has `mtp.*` tensors, or an `mtp_head` on the model's page; or no speculation:"
    " `speculative-config: None`.",
)
def mtp_without_tensors(plan: BoxPlan) -> Said:
    """Speculation by an MTP head is asked for, and the checkpoint has no `mtp.*` tensors: no draft is ever accepted, or
    the engine does not start. With a head by the page's `mtp_head` it has them; when `architecture.mtp` does not say
    so, their memory is not counted: a warning."""
    for instance in _with_mtp(plan):
        model = instance.model
        if model.architecture is None or model.architecture.mtp is not None:
            continue
        if model.mtp_head is None:
            yield f"{instance.name}: {model.name} has no mtp.* tensors", OFF
        else:
            yield (
                f"{instance.name}: {model.name} gets an MTP head that its architecture does not count",
                HEADS_OWN,
                "warning",
            )


@rule(
    "GF522",
    "mtp-method",
    level="warning",
    source="box C of the recipes; vLLM 0.27.1, config/speculative.py",
    remedy="`mtp`, which is right for every family; `qwen3_5_mtp` for Qwen 3.5, 3.6 and 3.8.",
)
def mtp_method(plan: BoxPlan) -> Said:
    """The method is another family's. vLLM before 0.27 takes it without a word and decodes at half the speed; later
    ones take any such name as `mtp`: information."""
    for instance in _with_mtp(plan):
        method = mapping(instance, "speculative-config")["method"]
        shape, version = instance.model.architecture, vllm_version(instance.stack)
        families = FAMILIES.get(method)
        if shape and families and shape.family not in families:
            message = f"{instance.name}: the method {method} is not for {shape.family}"
            remedy = 'serve_args = {"speculative-config": {"method": "mtp"}}'
            yield message, remedy, "info" if version >= NAMES_MATTER_BEFORE else "warning"


@rule(
    "GF523",
    "mtp-multiple",
    level="error",
    source="vLLM: num_speculative_tokens above n_predict must be a multiple of it",
    remedy="A multiple of the head's layers.",
)
def mtp_multiple(plan: BoxPlan) -> Said:
    """More tokens are drafted than the head has layers, and not a multiple of them; vLLM refuses that at start."""
    for instance in _with_mtp(plan):
        shape, tokens = instance.model.architecture, speculative_tokens(instance)
        if shape and shape.mtp and tokens > shape.mtp.layers and tokens % shape.mtp.layers:
            right = tokens // shape.mtp.layers * shape.mtp.layers
            yield (
                f"{instance.name}: {tokens} speculative tokens, and an MTP head of {shape.mtp.layers} layers",
                f'serve_args = {{"speculative-config": {{"num_speculative_tokens": {right}}}}}',
            )


@rule(
    "GF524",
    "mtp-text-only",
    level="error",
    source="vLLM 0.27.1: Unsupported speculative method: 'mtp'",
    remedy="A checkpoint of the whole model (`qwen3_5`), served with `language-model-only`; or no speculation.",
)
def mtp_text_only(plan: BoxPlan) -> Said:
    """A checkpoint of `model_type` qwen3_5_text has no speculation by MTP in vLLM."""
    for instance in _with_mtp(plan):
        shape = instance.model.architecture
        if shape and shape.family in ("qwen3_5_text", "qwen3_5_moe_text"):
            yield f"{instance.name}: {shape.family} cannot speculate by MTP", OFF


@rule(
    "GF525",
    "mtp-draft-quantised",
    level="warning",
    source="field-problems 38; the patch `mtp-bf16-draft`; vLLM 0.28 does it by itself",
    remedy='`serve_env = {"VLLM_QWOPUS_MTP_BF16_DRAFT": "1"}` with a stack that provides mtp-bf16-draft.',
)
def mtp_draft_quantised(plan: BoxPlan) -> Said:
    """The MTP head is in BF16 beside quantised weights, and the stack would build it quantised: it does not load, or no
    draft is accepted. Stacks that provide `mtp-bf16-draft` build it right when they are told to."""
    for instance in _with_mtp(plan):
        shape = instance.model.architecture
        if shape is None or shape.mtp is None or shape.mtp.quantised or shape.quantization in ("none", "fp8"):
            continue
        provided = "mtp-bf16-draft" in instance.stack.provides
        told = instance.env.get("VLLM_QWOPUS_MTP_BF16_DRAFT") == "1"
        if provided and not told:
            yield (
                f"{instance.name}: its MTP head is BF16, and VLLM_QWOPUS_MTP_BF16_DRAFT is off",
                'serve_env = {"VLLM_QWOPUS_MTP_BF16_DRAFT": "1"}',
            )
        elif not provided and shape.experts and vllm_version(instance.stack)[:2] in ((0, 24), (0, 27)):
            yield (
                f"{instance.name}: {instance.stack.name} builds the draft of a mixture of experts quantised",
                f"use a stack that provides mtp-bf16-draft; or {OFF}",
            )


@rule(
    "GF526",
    "draft-tensor-parallel",
    level="info",
    source="box A of the recipes: spares traffic between the cards, and does not always start",
    remedy="Take `draft_tensor_parallel_size` out when an instance does not come up.",
)
def draft_tensor_parallel(plan: BoxPlan) -> Said:
    """`draft_tensor_parallel_size` 1 keeps the draft on one card. It does not always start, and is the first thing to
    take away then."""
    for instance in by_vllm(plan):
        size = number(mapping(instance, "speculative-config").get("draft_tensor_parallel_size"))
        if size is not None and size != max(len(instance.gpus), 1):
            yield f"{instance.name}: the draft is on {size} of its GPUs", "take it out if the instance does not start"


@rule(
    "GF529",
    "mtp-head-replaced",
    level="warning",
    source="box A of the recipes: the head that replaces Ornith's own is BF16",
    remedy="`architecture.mtp` of the head that is served, as `gpufleet models add` with --mtp-head writes it.",
)
def mtp_head_replaced(plan: BoxPlan) -> Said:
    """The page replaces the MTP head of quantised weights (`mtp_head`), and its `architecture.mtp` says `quantised`.
    That is as a rule of the head that went: the one that replaces it is BF16, and is to be built so (GF525). Without
    speculation the head that was replaced is not used, and takes no memory of a card: information."""
    for instance in by_vllm(plan):
        model, shape = instance.model, instance.model.architecture
        if model.mtp_head is None:
            continue
        if not uses_mtp(instance):
            yield f"{instance.name}: no speculation by MTP, so the head of the page's mtp_head is not used", ON, "info"
        elif shape and shape.mtp and shape.mtp.quantised and shape.quantization != "none":
            yield f"{instance.name}: architecture.mtp says that the replaced MTP head is quantised", HEADS_OWN
