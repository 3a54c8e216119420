"""The lab's model as a mixture of experts whose own MTP head is of no use, and a head that is: A2 of the recipes.

Its own head names 785 tensors, each of the 256 experts for itself, and its `fc` leads nowhere, so that no draft of it
is ever right. The other has all experts in two tensors, 19 in all, and the draft that the lab's model has.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from lab import model

EXPERTS, INNER = 256, 32  # the least that vLLM's kernels for the CPU take is 32
SHARD, OWN = "model-00001-of-00001.safetensors", "model-mtp.safetensors"
Weights = dict[str, np.ndarray]


def build(folder: Path, head: Path) -> None:
    """Write the model into `folder`, and the head that is of use to the file `head`."""
    model.build(folder)
    random = np.random.Generator(np.random.PCG64(model.SEED))

    def noise(*shape: int) -> np.ndarray:
        return ((random.random(shape) * 2 - 1) * 0.03).astype(np.float32)

    weights = _mixed(load_file(folder / SHARD), noise)
    good = {name: weights.pop(name) for name in sorted(weights) if name.startswith("mtp.")}
    own = _single(good) | {"mtp.fc.weight": np.zeros_like(good["mtp.fc.weight"])}
    assert (len(own), len(good)) == (785, 19)
    save_file(weights, folder / SHARD, metadata={"format": "pt"})
    save_file(own, folder / OWN, metadata={"format": "pt"})
    head.parent.mkdir(parents=True, exist_ok=True)
    save_file(good, head, metadata={"format": "pt"})
    page = {
        "metadata": {"total_size": sum(array.nbytes for array in (weights | own).values())},
        "weight_map": dict.fromkeys(sorted(weights), SHARD) | dict.fromkeys(sorted(own), OWN),
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(page))
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe"}
    config["vision_config"]["model_type"] = "qwen3_5_moe"
    config["text_config"] |= {
        "model_type": "qwen3_5_moe_text",
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": INNER,
        "shared_expert_intermediate_size": INNER,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def _mixed(dense: Weights, noise: Callable[..., np.ndarray]) -> Weights:
    """The same with experts in the place of each dense layer."""
    found = {name: array for name, array in dense.items() if ".mlp." not in name}
    for name in sorted(dense):
        if name.endswith(".mlp.gate_proj.weight"):
            at, wide = name.removesuffix("gate_proj.weight"), dense[name].shape[1]
            found |= {
                f"{at}gate.weight": noise(EXPERTS, wide),
                f"{at}experts.gate_up_proj": noise(EXPERTS, 2 * INNER, wide),
                f"{at}experts.down_proj": noise(EXPERTS, wide, INNER),
                f"{at}shared_expert.gate_proj.weight": noise(INNER, wide),
                f"{at}shared_expert.up_proj.weight": noise(INNER, wide),
                f"{at}shared_expert.down_proj.weight": noise(wide, INNER),
                f"{at}shared_expert_gate.weight": noise(1, wide),
            }
    return found


def _single(head: Weights) -> Weights:
    """The same head, each expert for itself."""
    found = {}
    for name, array in head.items():
        if name.endswith("experts.gate_up_proj"):
            at = name.removesuffix("gate_up_proj")
            for number, both in enumerate(array):
                found[f"{at}{number}.gate_proj.weight"] = np.ascontiguousarray(both[:INNER])
                found[f"{at}{number}.up_proj.weight"] = np.ascontiguousarray(both[INNER:])
        elif name.endswith("experts.down_proj"):
            at = name.removesuffix("down_proj")
            found |= {f"{at}{number}.down_proj.weight": np.ascontiguousarray(one) for number, one in enumerate(array)}
        else:
            found[name] = array
    return found
