"""Rules about CUDA graphs: for how many tokens at once they are captured, and in which mode."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet.plan import BoxPlan, Instance
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import (
    archs,
    by_vllm,
    graphs_mode,
    mapping,
    number,
    sequences,
    speculative_tokens,
    uses_mtp,
)

SOURCE = "field-problems 40; vLLM 37865 and 54933"
COMPUTED = "leave cudagraph_capture_sizes out: they are computed from streams and speculative tokens"


def _captured(plan: BoxPlan) -> Iterator[tuple[Instance, list[int], int]]:
    """(instance, sizes as given, tokens of one request in a step) of instances that capture given sizes."""
    for instance in by_vllm(plan):
        found = mapping(instance, "compilation-config").get("cudagraph_capture_sizes")
        if isinstance(found, list) and found and graphs_mode(instance) != "NONE":
            sizes = [size for size in found if number(size)]
            if sizes:
                yield instance, sizes, speculative_tokens(instance) + 1


@rule(
    "GF530",
    "capture-maximum",
    level="error",
    source="vLLM 0.27.1, config/vllm.py: the maximum must be the largest size",
    remedy="No `max_cudagraph_capture_size`; it is computed.",
)
def capture_maximum(plan: BoxPlan) -> Said:
    """`max_cudagraph_capture_size` is not the largest of `cudagraph_capture_sizes`; vLLM does not start."""
    for instance, sizes, _ in _captured(plan):
        most = mapping(instance, "compilation-config").get("max_cudagraph_capture_size")
        if most is not None and most != max(sizes):
            yield (
                f"{instance.name}: max_cudagraph_capture_size is {most}, the largest size is {max(sizes)}",
                f"set it to {max(sizes)}, or leave both out: they are computed",
            )


@rule(
    "GF531",
    "capture-too-small",
    level="warning",
    source=SOURCE + "; seen on box A: the ends of answers at 2 to 3 tok/s",
    remedy="No `cudagraph_capture_sizes`; they are computed from streams and speculative tokens.",
)
def capture_too_small(plan: BoxPlan) -> Said:
    """With k speculative tokens each request has k+1 tokens in a step. Graphs for fewer than all streams take leave the
    others without: 25 tok/s in place of 133 were seen."""
    for instance, sizes, step in _captured(plan):
        if instance.streams and max(sizes) < step * instance.streams:
            need, fewer = step * instance.streams, max(max(sizes) // step, 1)
            yield (
                f"{instance.name}: graphs for {max(sizes)} tokens, {instance.streams} streams take {need}",
                f"{COMPUTED} (multiples of {step} up to {need}); or set streams to {fewer}",
            )


@rule(
    "GF532",
    "capture-uneven",
    level="warning",
    source=SOURCE,
    remedy="Multiples of the speculative tokens and one; or leave them to be computed.",
)
def capture_uneven(plan: BoxPlan) -> Said:
    """Sizes that are no multiples of k+1 fit no number of requests: they are padded, or rounded up (only by the first
    model runner, and only for full graphs), and cost memory for nothing. Sizes of a prefill, beyond all requests, are
    not meant."""
    for instance, sizes, step in _captured(plan):
        most = (sequences(instance) or instance.streams or 0) * step
        uneven = [size for size in sizes if size % step and size <= most]
        if uneven and step > 1:
            yield f"{instance.name}: capture sizes {uneven} are no multiples of {step}", COMPUTED


@rule(
    "GF533",
    "capture-too-large",
    level="info",
    source="box A of the recipes; vLLM captures each size, which takes time and memory",
    remedy="Sizes up to (k+1) × `max-num-seqs`; piecewise graphs may go further, for prefill.",
)
def capture_too_large(plan: BoxPlan) -> Said:
    """Graphs for more tokens than all requests together have in a step: they serve a prefill at most, and take memory
    from the KV cache."""
    for instance, sizes, step in _captured(plan):
        most = (sequences(instance) or 0) * step
        beyond = [size for size in sizes if most and size > most]
        if beyond and graphs_mode(instance) != "PIECEWISE":
            yield f"{instance.name}: graphs for {max(beyond)} tokens, its requests have {most} at most", COMPUTED


def _hybrid_mtp(plan: BoxPlan) -> Iterator[Instance]:
    """Instances on SM75 that draft for a model with gated-delta-net layers, with graphs."""
    for instance in by_vllm(plan):
        shape = instance.model.architecture
        hybrid = shape is None or shape.layers.linear_attention
        if "sm75" in archs(plan, instance) and uses_mtp(instance) and hybrid and graphs_mode(instance) != "NONE":
            yield instance


@rule(
    "GF534",
    "full-graphs-mtp",
    level="info",
    source="field-problems 39; weicj 24 and 105; box A runs with them at three streams",
    remedy='`serve_args = {"compilation-config": {"cudagraph_mode": "PIECEWISE"}}` if answers are scrambled.',
)
def full_graphs_mtp(plan: BoxPlan) -> Said:
    """MTP with full CUDA graphs has scrambled answers of models with gated delta net on SM75, in other engines and
    versions (`123+456` was read as `1+2=3`). Box A serves so and answers right; the gate asks a sum."""
    for instance in _hybrid_mtp(plan):
        if graphs_mode(instance) != "PIECEWISE":
            yield (
                f"{instance.name}: MTP with full graphs ({graphs_mode(instance) or 'the default mode'})",
                'if answers are scrambled: serve_args = {"compilation-config": {"cudagraph_mode": "PIECEWISE"}}',
            )


@rule(
    "GF535",
    "several-streams-mtp",
    level="info",
    source="field-problems 41; weicj 105; box A runs at three and at seven",
    remedy='`streams = 1` and `serve_args = {"max-num-seqs": 1}` if it crashes.',
)
def several_streams_mtp(plan: BoxPlan) -> Said:
    """More than one request at once with MTP and graphs has crashed other engines on SM75. Box A serves three and
    seven."""
    for instance in _hybrid_mtp(plan):
        seqs = sequences(instance)
        if seqs is not None and seqs > 1:
            yield (
                f"{instance.name}: {seqs} requests at once with MTP and CUDA graphs on SM75",
                'if it crashes: streams = 1, serve_args = {"max-num-seqs": 1}',
            )
