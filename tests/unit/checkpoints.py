"""Headers of public checkpoints as their families' code names and shapes the tensors; no tensor has any content."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from math import ceil, prod
from pathlib import Path
from typing import Any

from hostkit.safetensors import BITS, LENGTH

DATA = Path(__file__).resolve().parents[1] / "data" / "checkpoints"
Shape = list[int]
Tensors = Iterator[tuple[str, str, Shape]]  # name, dtype, shape
Form = Callable[[str, int, int], Tensors]  # (module, out, in) → its tensors


def config(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return found


def laid_out(tensors: Tensors) -> dict[str, Any]:
    """Headers of tensors that lie one after another."""
    found, at = {}, 0
    for name, dtype, shape in tensors:
        end = at + (prod(shape) * BITS[dtype] + 7) // 8
        assert name not in found
        found[name], at = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}, end
    return found


def write(path: Path, headers: dict[str, Any]) -> None:
    """A file with these headers; its tensors are a hole that takes no room on the disk."""
    text = json.dumps(headers).encode()
    size = max((its["data_offsets"][1] for its in headers.values()), default=0)
    with path.open("wb") as handle:
        handle.write(len(text).to_bytes(LENGTH, "little") + text)
        handle.truncate(LENGTH + len(text) + size)


def plain(module: str, out: int, into: int) -> Tensors:
    yield f"{module}.weight", "BF16", [out, into]


def awq(module: str, out: int, into: int, group: int = 128) -> Tensors:
    yield f"{module}.qweight", "I32", [into, out // 8]
    yield f"{module}.qzeros", "I32", [into // group, out // 8]
    yield f"{module}.scales", "F16", [into // group, out]


def gptq(module: str, out: int, into: int, group: int = 128) -> Tensors:
    yield f"{module}.qweight", "I32", [into // 8, out]
    yield f"{module}.qzeros", "I32", [into // group, out // 8]
    yield f"{module}.scales", "F16", [into // group, out]
    yield f"{module}.g_idx", "I32", [into]


def fp8_blocks(module: str, out: int, into: int) -> Tensors:
    yield f"{module}.weight", "F8_E4M3", [out, into]
    yield f"{module}.weight_scale_inv", "BF16", [ceil(out / 128), ceil(into / 128)]


def fp8_tensor(module: str, out: int, into: int) -> Tensors:
    yield f"{module}.weight", "F8_E4M3", [out, into]
    yield f"{module}.weight_scale", "F32", []
    yield f"{module}.input_scale", "F32", []


def nvfp4(module: str, out: int, into: int) -> Tensors:
    yield f"{module}.weight", "U8", [out, into // 2]
    yield f"{module}.weight_scale", "F8_E4M3", [out, into // 16]
    yield f"{module}.weight_scale_2", "F32", []
    yield f"{module}.input_scale", "F32", []


def nvfp4_packed(module: str, out: int, into: int) -> Tensors:
    yield f"{module}.weight_packed", "U8", [out, into // 2]
    yield f"{module}.weight_scale", "F8_E4M3", [out, into // 16]
    yield f"{module}.weight_global_scale", "F32", [1]
    yield f"{module}.input_global_scale", "F32", [1]


def packed_int4(module: str, out: int, into: int, group: int = 32) -> Tensors:
    yield f"{module}.weight_packed", "I32", [out, into // 8]
    yield f"{module}.weight_scale", "BF16", [out, into // group]
    yield f"{module}.weight_zero_point", "I32", [out // 8, into // group]
    yield f"{module}.weight_shape", "I64", [2]


def mlp(module: str, hidden: int, wide: int, form: Form) -> Tensors:
    yield from form(f"{module}.gate_proj", wide, hidden)
    yield from form(f"{module}.up_proj", wide, hidden)
    yield from form(f"{module}.down_proj", hidden, wide)


def norms(prefix: str, hidden: int, *names: str) -> Tensors:
    for name in names:
        yield f"{prefix}{name}.weight", "BF16", [hidden]


def attention(module: str, c: dict[str, Any], form: Form, gate: int = 1, qk_norm: bool = True) -> Tensors:
    """+ gate: 2 where q_proj makes the output's gate too"""
    width = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    query, pair = c["num_attention_heads"] * width, c["num_key_value_heads"] * width
    yield from form(f"{module}.q_proj", query * gate, c["hidden_size"])
    yield from form(f"{module}.k_proj", pair, c["hidden_size"])
    yield from form(f"{module}.v_proj", pair, c["hidden_size"])
    yield from form(f"{module}.o_proj", c["hidden_size"], query)
    if qk_norm:
        yield from norms(f"{module}.", width, "q_norm", "k_norm")


def dense(
    c: dict[str, Any], form: Form = plain, qk_norm: bool = True, more: tuple[str, ...] = (), head: bool = True
) -> dict[str, Any]:
    """Llama, Qwen3 and Gemma 3. + more: norms beside the usual two; head: whether lm_head is in the file"""

    def tensors() -> Tensors:
        hidden = c["hidden_size"]
        yield from plain("model.embed_tokens", c["vocab_size"], hidden)
        for at in range(c["num_hidden_layers"]):
            layer = f"model.layers.{at}."
            yield from norms(layer, hidden, "input_layernorm", "post_attention_layernorm", *more)
            yield from attention(f"{layer}self_attn", c, form, qk_norm=qk_norm)
            yield from mlp(f"{layer}mlp", hidden, c["intermediate_size"], form)
        yield from norms("model.", hidden, "norm")
        if head:
            yield from plain("lm_head", c["vocab_size"], hidden)

    return laid_out(tensors())


def gpt_oss(c: dict[str, Any]) -> dict[str, Any]:
    def tensors() -> Tensors:
        hidden, wide, experts = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
        yield from plain("model.embed_tokens", c["vocab_size"], hidden)
        for at in range(c["num_hidden_layers"]):
            layer = f"model.layers.{at}."
            yield from norms(layer, hidden, "input_layernorm", "post_attention_layernorm")
            for name, dtype, shape in attention(f"{layer}self_attn", c, plain, qk_norm=False):
                yield name, dtype, shape
                yield name.replace(".weight", ".bias"), dtype, shape[:1]
            yield f"{layer}self_attn.sinks", "BF16", [c["num_attention_heads"]]
            yield from plain(f"{layer}mlp.router", experts, hidden)
            yield f"{layer}mlp.router.bias", "BF16", [experts]
            for name, out, into in (("gate_up_proj", 2 * wide, hidden), ("down_proj", hidden, wide)):
                yield f"{layer}mlp.experts.{name}_blocks", "U8", [experts, out, into // 32, 16]
                yield f"{layer}mlp.experts.{name}_scales", "U8", [experts, out, into // 32]
                yield f"{layer}mlp.experts.{name}_bias", "BF16", [experts, out]
        yield from norms("model.", hidden, "norm")
        yield from plain("lm_head", c["vocab_size"], hidden)

    return laid_out(tensors())


def vision(v: dict[str, Any], prefix: str = "model.visual.") -> Tensors:
    """The tower of Qwen3.5: 12 tensors a block, and 9."""

    def both(module: str, *shape: int) -> Tensors:
        yield f"{prefix}{module}.weight", "BF16", list(shape)
        yield f"{prefix}{module}.bias", "BF16", [shape[0]]

    hidden, wide, patch = v["hidden_size"], v["intermediate_size"], v["patch_size"]
    yield from both("patch_embed.proj", hidden, v["in_channels"], v["temporal_patch_size"], patch, patch)
    yield f"{prefix}pos_embed.weight", "BF16", [v["num_position_embeddings"], hidden]
    for at in range(v["depth"]):
        yield from both(f"blocks.{at}.norm1", hidden)
        yield from both(f"blocks.{at}.norm2", hidden)
        yield from both(f"blocks.{at}.attn.qkv", 3 * hidden, hidden)
        yield from both(f"blocks.{at}.attn.proj", hidden, hidden)
        yield from both(f"blocks.{at}.mlp.linear_fc1", wide, hidden)
        yield from both(f"blocks.{at}.mlp.linear_fc2", hidden, wide)
    merged = hidden * v["spatial_merge_size"] ** 2
    yield from both("merger.norm", hidden)
    yield from both("merger.linear_fc1", merged, merged)
    yield from both("merger.linear_fc2", v["out_hidden_size"], merged)


def linear_attention(module: str, c: dict[str, Any], form: Form, fused: bool) -> Tensors:
    """+ fused: two input projections, as Qwen3-Next has them; else four"""
    key, value = c["linear_num_key_heads"] * c["linear_key_head_dim"], 0
    heads = c["linear_num_value_heads"]
    value = heads * c["linear_value_head_dim"]
    if fused:
        yield from form(f"{module}.in_proj_qkvz", 2 * key + 2 * value, c["hidden_size"])
        yield from plain(f"{module}.in_proj_ba", 2 * heads, c["hidden_size"])
    else:
        yield from form(f"{module}.in_proj_qkv", 2 * key + value, c["hidden_size"])
        yield from form(f"{module}.in_proj_z", value, c["hidden_size"])
        yield from plain(f"{module}.in_proj_b", heads, c["hidden_size"])
        yield from plain(f"{module}.in_proj_a", heads, c["hidden_size"])
    yield from form(f"{module}.out_proj", c["hidden_size"], value)
    yield f"{module}.conv1d.weight", "BF16", [2 * key + value, 1, c["linear_conv_kernel_dim"]]
    yield f"{module}.A_log", "BF16", [heads]
    yield f"{module}.dt_bias", "BF16", [heads]
    yield f"{module}.norm.weight", "BF16", [c["linear_value_head_dim"]]


def qwen(
    whole: dict[str, Any],
    form: Form = plain,
    experts: Form | None = None,
    attend: Form | None = None,
    linear: Form | None = None,
    shared: Form | None = None,
    head: Form = plain,
    draft: Form | None = None,
    stacked: bool = False,
) -> dict[str, Any]:
    """Qwen3-Next, and Qwen3.5 and newer, dense or not.

    + form: of all linear modules of the decoder; experts, attend, linear, shared: of theirs
    + draft: of the MTP head's; None: it has none. stacked: its experts are two tensors
    """
    c = whole.get("text_config", whole)
    base = "model.language_model." if "text_config" in whole else "model."

    def layer(prefix: str, kind: str, form: Form, stack: bool) -> Tensors:
        hidden, own = c["hidden_size"], prefix.startswith("mtp")
        yield from norms(prefix, hidden, "input_layernorm", "post_attention_layernorm")
        if kind == "linear_attention":
            yield from linear_attention(f"{prefix}linear_attn", c, linear or form, "text_config" not in whole)
        else:
            yield from attention(f"{prefix}self_attn", c, form if own else attend or form, gate=2)
        if "num_experts" not in c:
            yield from mlp(f"{prefix}mlp", hidden, c["intermediate_size"], form)
            return
        wide, count = c["moe_intermediate_size"], c["num_experts"]
        yield from plain(f"{prefix}mlp.gate", count, hidden)
        yield from plain(f"{prefix}mlp.shared_expert_gate", 1, hidden)
        yield from mlp(
            f"{prefix}mlp.shared_expert", hidden, c["shared_expert_intermediate_size"], form if own else shared or form
        )
        if stack:
            yield f"{prefix}mlp.experts.gate_up_proj", "BF16", [count, 2 * wide, hidden]
            yield f"{prefix}mlp.experts.down_proj", "BF16", [count, hidden, wide]
        else:
            for at in range(count):
                yield from mlp(f"{prefix}mlp.experts.{at}", hidden, wide, form if own else experts or form)

    def tensors() -> Tensors:
        hidden = c["hidden_size"]
        yield from plain(f"{base}embed_tokens", c["vocab_size"], hidden)
        for at, kind in enumerate(c["layer_types"]):
            yield from layer(f"{base}layers.{at}.", kind, form, False)
        yield from norms(base, hidden, "norm")
        yield from head("lm_head", c["vocab_size"], hidden)
        if draft is not None:
            yield from plain("mtp.fc", hidden, 2 * hidden)
            yield from norms("mtp.", hidden, "norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
            yield from layer("mtp.layers.0.", "full_attention", draft, stacked)
        if "vision_config" in whole:
            yield from vision(whole["vision_config"])

    return laid_out(tensors())
