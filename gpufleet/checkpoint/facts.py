"""A checkpoint's architecture, from its config.json and its safetensors headers. Pure: nothing is read here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gpufleet.architecture import Architecture, Mtp
from gpufleet.checkpoint import quantization, tensors
from gpufleet.checkpoint.config import Config, UnknownFact, config
from gpufleet.checkpoint.layers import layers, linear
from gpufleet.checkpoint.tensors import Headers
from hostkit.safetensors import quoted

# Experts by families' names of it: how many there are, how many the router chooses, how wide one is.
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "top_k_experts")
# Attention whose cache is no heads times head_dim, or not the same in all layers: there is no form for it yet.
OTHER_ATTENTION = {
    "kv_lora_rank": "latent attention (MLA)",
    "global_head_dim": "heads of another width in some layers",
    "num_global_key_value_heads": "another number of KV heads in some layers",
}


@dataclass(frozen=True)
class Facts:
    """`notes`: what is odd about the checkpoint, one line each."""

    architecture: Architecture
    notes: list[str]


def facts(whole: Any, headers: Headers, beside: Any = None, head: Headers | None = None) -> Facts:
    """What a checkpoint is. Raises UnknownFact for what its files do not say.

    + whole: config.json
    + headers: of all its tensors, by name
    + beside: hf_quant_config.json, where there is one
    + head: headers of the MTP head that takes the place of its own
    """
    found = config(whole)
    for key, what in OTHER_ATTENTION.items():
        if found.any(key):
            raise UnknownFact(f"{found.place} has {key}: {what}, which the memory estimate has no form for")
    count = found.number("num_hidden_layers")
    heads = found.optional("num_nextn_predict_layers") or 0
    own = {name: header for name, header in headers.items() if tensors.is_mtp(name, count, heads)}
    rest = {name: header for name, header in headers.items() if name not in own}
    other = {name: header for name, header in rest.items() if tensors.is_other_input(name)}
    text = {name: header for name, header in rest.items() if name not in other}
    said = quantization.section(found, beside)
    mtp = own if head is None else dict(head)
    try:
        architecture = _architecture(
            found,
            quantization=quantization.method(said),
            weights_mib=max(1, tensors.mib(tensors.total(_loaded(found, text).values()))),
            vision_mib=tensors.mib(tensors.total(other.values())),
            mtp=_mtp(found, mtp) if mtp else None,
        )
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UnknownFact(f"{found.place}: {key} is {quoted(first['input'])}, which no model has") from None
    notes = _notes(found, architecture, said, mtp)
    if said is None and tensors.narrow_modules(text):
        notes.append("tensors are quantised, and config.json has no quantization_config: an engine has to be told how")
    return Facts(architecture, notes)


def _architecture(found: Config, **more: Any) -> Architecture:
    kinds = layers(found)
    hidden, heads = found.number("hidden_size"), found.number("num_attention_heads")
    width = found.optional("head_dim")
    if width is None and hidden % heads:
        raise UnknownFact(f"{found.place} has no head_dim, and hidden_size is no multiple of num_attention_heads")
    experts = found.optional(*EXPERTS)
    return Architecture(
        family=found.family,
        layers=kinds,
        hidden_size=hidden,
        intermediate_size=_together(found) if experts else found.number("intermediate_size"),
        heads=heads,
        kv_heads=found.optional("num_key_value_heads") or heads,
        head_dim=width or hidden // heads,
        vocab_size=found.number("vocab_size"),
        max_positions=found.number("max_position_embeddings"),
        sliding_window=found.optional("sliding_window") if kinds.sliding_attention else None,
        linear=linear(found, kinds),
        experts=experts,
        experts_per_token=found.number(*CHOSEN) if experts else None,
        **more,
    )


def _together(found: Config) -> int:
    """The width of all experts that a token takes, the shared one too."""
    width = found.number("moe_intermediate_size", "intermediate_size")
    shared = found.optional("shared_expert_intermediate_size")
    if shared is None:
        shared = (found.optional("n_shared_experts", "num_shared_experts") or 0) * width
    return found.number(*CHOSEN) * width + shared


def _loaded(found: Config, text: Headers) -> Headers:
    """Without an lm_head that the embeddings stand for: engines do not load it."""
    tied = found.any("tie_word_embeddings")
    tied = found.whole.get("tie_word_embeddings") if tied is None else tied
    return {name: header for name, header in text.items() if not (tied is True and name.endswith("lm_head.weight"))}


def _mtp(found: Config, headers: Headers) -> Mtp:
    count = found.optional("mtp_num_hidden_layers", "num_nextn_predict_layers")
    if count is None:
        count = len({at[1] for name in headers if (at := tensors.LAYER.search(name))}) or 1
    return Mtp(
        layers=count,
        mib=tensors.mib(tensors.total(headers.values())),
        tensors=len(headers),
        quantised=bool(tensors.narrow_modules(headers)),
    )


def _notes(found: Config, made: Architecture, said: Mapping[str, Any] | None, mtp: Headers) -> list[str]:
    notes = []
    if not mtp and (found.optional("mtp_num_hidden_layers", "num_nextn_predict_layers")):
        notes.append("config.json announces an MTP head, and no tensor of it is there: it cannot speculate by MTP")
    if made.quantization != "none":
        wide = sorted(module for module in tensors.wide_modules(mtp) if quantization.converts(said, module))
        narrow = sorted(module for module in tensors.narrow_modules(mtp) if not quantization.converts(said, module))
        for modules, by_config, by_tensor in ((wide, "is", "is not"), (narrow, "is not", "is")):
            if modules:
                notes.append(
                    f"MTP head: by config.json {modules[0]} {by_config} quantised, its tensor {by_tensor} "
                    f"({len(modules)} modules): an engine that goes by the config builds the head wrong"
                )
    return notes
