"""Whether a checkpoint is what its page says, and its tensors what its config.json says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet.architecture import Architecture
from gpufleet.checks.facts import Facts, Problem
from gpufleet.models import Model

MIB = 1 << 20
# Sizes on a page may be rounded; more than both of these is another checkpoint.
SHARE, LEAST_MIB = 0.01, 16
# Which endings of tensors' names a kind of quantisation brings, any of them (AutoAWQ, GPTQModel, compressed-tensors,
# Qwen's and DeepSeek's FP8, ModelOpt: as their checkpoints have them and vLLM 0.27.1 reads them).
BRINGS = {
    "awq": ("qweight",),
    "gptq": ("qweight",),
    "auto-round": ("qweight",),
    "fp8": ("weight_scale_inv", "weight_scale"),
    "compressed-tensors": ("weight_packed", "weight_scale"),
    "nvfp4": ("weight_packed", "weight_scale", "weight_scale_2"),
}
LIKE = {"auto-round": ("gptq", "awq", "auto-round")}  # a page has the word of the packing that it is served as
COUNTS = {
    "hidden_size": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "max_positions": "max_position_embeddings",
}
ANEW = "`gpufleet models add` makes the page anew"


def tensors_agree(facts: Facts) -> Iterator[Problem]:
    """The kind of quantisation that config.json names, and the tensors that such a checkpoint has."""
    kinds = set((facts.tensors.get("rest") or {}).get("kinds") or {})
    if not facts.tensors.get("tensors"):
        return
    brings = BRINGS.get(facts.method)
    if brings and not kinds & set(brings):
        cause = f"says {facts.method}, and no tensor is called {' or '.join(brings)}"
        yield Problem("error", "config.json", cause, "take the config.json that belongs to these shards")
    if facts.method == "none" and kinds:
        cause = f"names no quantisation, and there are tensors called {', '.join(sorted(kinds))}"
        yield Problem("error", "config.json", cause, "take the config.json that belongs to these shards")
    dtypes: Mapping[str, int] = (facts.tensors.get("rest") or {}).get("dtypes") or {}
    said = str(facts.text_config.get("dtype") or facts.text_config.get("torch_dtype") or "")
    if facts.method == "none" and dtypes and max(dtypes, key=lambda name: dtypes[name]) == "F32" and said != "float32":
        cause = f"says {said or 'no dtype'}, and its tensors are of float32: twice as much to load"
        yield Problem("warning", "config.json", cause, "look for a checkpoint in 16 bits")


def agrees(facts: Facts, model: Model) -> Iterator[Problem]:
    """What the page's `architecture` says, held against config.json and the tensors."""
    shape = model.architecture
    if shape is None:
        return
    if facts.config.get("model_type") != shape.family:
        yield _other("architecture.family", shape.family, facts.config.get("model_type"), "model_type")
    if facts.method not in (shape.quantization,) and shape.quantization not in LIKE.get(facts.method, ()):
        yield _other("architecture.quantization", shape.quantization, facts.method, "quant_method")
    config = facts.text_config
    for ours, theirs in COUNTS.items():
        found = config.get(theirs)
        if isinstance(found, int) and found != getattr(shape, ours):
            yield _other(f"architecture.{ours}", getattr(shape, ours), found, theirs)
    layers = config.get("num_hidden_layers")
    if isinstance(layers, int) and layers != shape.layers.count:
        yield _other("architecture.layers", f"{shape.layers.count} together", layers, "num_hidden_layers")
    if facts.tensors.get("tensors"):
        yield from _sizes(facts.tensors, shape)
        yield from _head(facts.tensors["mtp"], shape)


def _other(key: str, ours: object, theirs: object, name: str) -> Problem:
    cause = f"the page's {key} is {ours}, config.json's {name} is {theirs if theirs is not None else 'not there'}"
    return Problem("error", "", cause, f"correct the page, or look whether this is the right checkpoint; {ANEW}")


def _sizes(tensors: Mapping[str, Any], shape: Architecture) -> Iterator[Problem]:
    for key, part, ours in (("weights_mib", "rest", shape.weights_mib), ("vision_mib", "vision", shape.vision_mib)):
        found = -(-tensors[part]["bytes"] // MIB)
        if abs(found - ours) > max(LEAST_MIB, SHARE * ours):
            cause = f"the page's architecture.{key} is {ours}, the tensors have {found} MiB"
            yield Problem("warning", "", cause, f"put {found} there, for the memory estimate; or {ANEW}")


def _head(found: Mapping[str, Any], shape: Architecture) -> Iterator[Problem]:
    """The MTP head of the page, and the `mtp.*` tensors that are there."""
    count, mtp = found["tensors"], shape.mtp
    if mtp is None:
        if count:
            cause = f"there are {count} mtp.* tensors, and the page's architecture has no mtp"
            yield Problem("warning", "", cause, f"add it, to speculate with the model's own head; {ANEW}")
        return
    if count != mtp.tensors:
        cause = f"the page's architecture.mtp.tensors is {mtp.tensors}, there are {count}"
        remedy = "deploy it again if its head is to be replaced (`mtp_head`), else correct the page"
        yield Problem("error", "", cause, remedy if count else "take `mtp` out of the page, and speculation with it")
        return
    quantised = bool(found["kinds"]) or bool(set(found["dtypes"]) & {"I32", "I8", "U8", "F8_E4M3", "F8_E5M2"})
    if quantised != mtp.quantised:
        words = ("quantised", "in 16 bits") if quantised else ("in 16 bits", "quantised")
        cause = f"the MTP head is {words[0]}, the page says {words[1]}"
        yield Problem("error", "", cause, f"set architecture.mtp.quantised to {str(quantised).lower()}")
    size = -(-found["bytes"] // MIB)
    if abs(size - mtp.mib) > max(LEAST_MIB, SHARE * mtp.mib):
        cause = f"the page's architecture.mtp.mib is {mtp.mib}, the mtp.* tensors have {size} MiB"
        yield Problem("warning", "", cause, f"put {size} there, for the memory estimate; or {ANEW}")
