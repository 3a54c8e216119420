"""Whether an MTP head is one for this model: its tensors by name and shape, against config.json.

An engine does not always say it: of a quantised target vLLM asks for no weight that is missing (0.27.1,
`DefaultModelLoader.load_weights`), and the draft keeps whatever memory held.
"""

from __future__ import annotations

import re
from typing import Optional

from hostkit.errors import Failure

PREFIX = "mtp."
FAMILIES = ("qwen3_5", "qwen3_next")  # model_type begins with; of others the names alone are known
PLAIN = ("BF16", "F16", "F32")  # packed tensors have shapes of their own
ANOTHER = "give `mtp_head` on the model's page the head that was made for this model"
LAYER = re.compile(r"mtp\.layers\.(\d+)\.")
EXPERT = re.compile(r"mtp\.layers\.\d+\.mlp\.experts\.\d+\.")
OWN_EMBEDDINGS = "mtp.embed_tokens"  # the only one that need not be there


def check(tensors: dict, config: dict, where: str) -> None:
    """Raise Failure for the first tensor of a head, by name, that is not this model's, or one that it lacks."""
    if not tensors:
        raise Failure("{} holds no tensors".format(where), ANOTHER, everywhere=True)
    for name in sorted(tensors):
        if not name.startswith(PREFIX):
            cause = "{} is not an MTP head alone: it holds the tensor {}".format(where, name)
            raise Failure(cause, ANOTHER, everywhere=True)
    if not str(config.get("model_type", "")).startswith(FAMILIES):
        return
    text = config.get("text_config") or config
    try:
        wanted, most = modules(text, single=any(map(EXPERT.match, tensors))), layers(text)
    except (KeyError, TypeError, ValueError) as error:
        raise Failure("config.json does not say what the MTP head is like: {!r}".format(error), "fetch the model again")
    _compare(tensors, wanted, most, where)


def modules(text: dict, single: bool) -> dict[str, list]:
    """The weights of the head by module, with the shapes that config.json makes them.

    + single: each expert has weights of its own; else all are in one tensor (`experts.gate_up_proj`)
    """
    wide = int(text["hidden_size"])
    heads, kv_heads = int(text["num_attention_heads"]), int(text["num_key_value_heads"])
    head = int(text.get("head_dim") or wide // heads)
    gates = 2 if text.get("attn_output_gate", True) else 1  # queries, and their gate
    found = {
        "mtp.fc": [wide, 2 * wide],
        "mtp.norm": [wide],
        "mtp.pre_fc_norm_embedding": [wide],
        "mtp.pre_fc_norm_hidden": [wide],
        OWN_EMBEDDINGS: [int(text["vocab_size"]), wide],
    }
    for number in range(layers(text)):
        at = "mtp.layers.{}.".format(number)
        found[at + "input_layernorm"] = found[at + "post_attention_layernorm"] = [wide]
        found[at + "self_attn.q_proj"] = [gates * heads * head, wide]
        found[at + "self_attn.k_proj"] = found[at + "self_attn.v_proj"] = [kv_heads * head, wide]
        found[at + "self_attn.o_proj"] = [wide, heads * head]
        found[at + "self_attn.q_norm"] = found[at + "self_attn.k_norm"] = [head]
        if text.get("num_experts"):
            found.update(_experts(text, at + "mlp.", wide, single))
        else:
            found.update(_dense(at + "mlp.", wide, int(text["intermediate_size"])))
    return found


def layers(text: dict) -> int:
    """How many decoder layers the head has: each family has its own key, and vLLM takes 1 where there is none."""
    for key in ("mtp_num_hidden_layers", "num_nextn_predict_layers"):
        if text.get(key) is not None:
            return int(text[key])
    return 1


def _dense(at: str, wide: int, inner: int) -> dict:
    return {at + "gate_proj": [inner, wide], at + "up_proj": [inner, wide], at + "down_proj": [wide, inner]}


def _experts(text: dict, at: str, wide: int, single: bool) -> dict:
    experts, inner = int(text["num_experts"]), int(text["moe_intermediate_size"])
    found = {
        at + "gate": [experts, wide],
        at + "shared_expert_gate": [1, wide],
        **_dense(at + "shared_expert.", wide, int(text["shared_expert_intermediate_size"])),
    }
    if single:
        for number in range(experts):
            found.update(_dense("{}experts.{}.".format(at, number), wide, inner))
    else:
        found[at + "experts.gate_up_proj"] = [experts, 2 * inner, wide]
        found[at + "experts.down_proj"] = [experts, wide, inner]
    return found


def _compare(tensors: dict, wanted: dict, most: int, where: str) -> None:
    there = {OWN_EMBEDDINGS}
    for name in sorted(tensors):
        module = _module(name, wanted)
        if module is None:
            of_layer = LAYER.match(name)
            many = of_layer is not None and int(of_layer.group(1)) >= most
            why = "config.json says {} MTP layers".format(most) if many else "the model's head has no such tensor"
            raise Failure("{}: {}: {}".format(where, name, why), ANOTHER, everywhere=True)
        there.add(module)
        shape, right = list(tensors[name]["shape"]), wanted[module]
        # The engine turns the experts' matrices where they lie the other way round.
        turned = shape == right[:1] + right[:0:-1] and len(right) == 3
        if tensors[name]["dtype"] in PLAIN and _is_weight(name, module) and shape != right and not turned:
            cause = "{}: {} has the shape {}, and by config.json it has {}".format(where, name, shape, right)
            raise Failure(cause, ANOTHER, everywhere=True)
    for module in sorted(set(wanted) - there):
        raise Failure("{} lacks {}".format(where, module), ANOTHER, everywhere=True)


def _module(name: str, wanted: dict) -> Optional[str]:
    """The module of a tensor: all experts' weight may be named as the module, others are `module.weight` and such."""
    for module in (name, name.rpartition(".")[0]):
        if module in wanted:
            return module
    return None


def _is_weight(name: str, module: str) -> bool:
    return name[len(module) :] in ("", ".weight")
