"""Small synthetic checkpoints of a mixture of experts with an MTP head: files of a store, and folders of links."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

WIDE, EXPERTS, INNER, SHARED, HEADS, KV_HEADS, HEAD = 8, 256, 2, 4, 2, 1, 4
CONFIG: dict[str, Any] = {
    "model_type": "qwen3_5_moe",
    "text_config": {
        "hidden_size": WIDE,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "vocab_size": 32,
        "num_experts": EXPERTS,
        "moe_intermediate_size": INNER,
        "shared_expert_intermediate_size": SHARED,
        "mtp_num_hidden_layers": 1,
    },
}
LAYER, MLP = "mtp.layers.0.", "mtp.layers.0.mlp."
COMMON = {
    "mtp.fc.weight": (WIDE, 2 * WIDE),
    "mtp.norm.weight": (WIDE,),
    "mtp.pre_fc_norm_embedding.weight": (WIDE,),
    "mtp.pre_fc_norm_hidden.weight": (WIDE,),
    LAYER + "input_layernorm.weight": (WIDE,),
    LAYER + "post_attention_layernorm.weight": (WIDE,),
    LAYER + "self_attn.q_proj.weight": (2 * HEADS * HEAD, WIDE),
    LAYER + "self_attn.k_proj.weight": (KV_HEADS * HEAD, WIDE),
    LAYER + "self_attn.v_proj.weight": (KV_HEADS * HEAD, WIDE),
    LAYER + "self_attn.o_proj.weight": (WIDE, HEADS * HEAD),
    LAYER + "self_attn.q_norm.weight": (HEAD,),
    LAYER + "self_attn.k_norm.weight": (HEAD,),
    MLP + "gate.weight": (EXPERTS, WIDE),
    MLP + "shared_expert.gate_proj.weight": (SHARED, WIDE),
    MLP + "shared_expert.up_proj.weight": (SHARED, WIDE),
    MLP + "shared_expert.down_proj.weight": (WIDE, SHARED),
    MLP + "shared_expert_gate.weight": (1, WIDE),
}
# The head of recipes.md A2: all experts in two tensors, 19 in all.
NEW = {
    **COMMON,
    MLP + "experts.gate_up_proj": (EXPERTS, 2 * INNER, WIDE),
    MLP + "experts.down_proj": (EXPERTS, WIDE, INNER),
}
# The head it takes the place of: each expert for itself, 785.
OLD = COMMON | {
    f"{MLP}experts.{number}.{name}.weight": (WIDE, INNER) if name == "down_proj" else (INNER, WIDE)
    for number in range(EXPERTS)
    for name in ("gate_proj", "up_proj", "down_proj")
}
BODY = {
    "model.embed_tokens.weight": (32, WIDE),
    "model.layers.0.mlp.gate.weight": (EXPERTS, WIDE),
    "lm_head.weight": (32, WIDE),
}

Shapes = dict[str, tuple[int, ...]]


def filled(shapes: Shapes, value: float) -> dict[str, np.ndarray]:
    return {name: np.full(shape, value, np.float16) for name, shape in shapes.items()}


def size(shapes: Shapes) -> int:
    """Bytes of the tensors."""
    return sum(2 * int(np.prod(shape)) for shape in shapes.values())


def write(folder: Path, files: dict[str, dict[str, np.ndarray]], index: bool = True, config: Any = CONFIG) -> Path:
    """Write a checkpoint of these shards."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensors in files.items():
        save_file(tensors, folder / name, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    if index:
        weight_map = {tensor: name for name, tensors in files.items() for tensor in tensors}
        total = sum(array.nbytes for tensors in files.values() for array in tensors.values())
        page = {"metadata": {"total_size": total, "total_parameters": 1, "by": "x"}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(page))
    return folder


def separate(folder: Path) -> Path:
    """The old head in a file of its own, as A2 has it."""
    files = {"model-00001-of-00001.safetensors": filled(BODY, 1), "model-mtp.safetensors": filled(OLD, 2)}
    return write(folder, files)


def mixed(folder: Path) -> Path:
    """The old head in two shards among other tensors."""
    old = filled(OLD, 2)
    half = len(old) // 2
    first, second = dict(list(old.items())[:half]), dict(list(old.items())[half:])
    body = filled(BODY, 1)
    embeddings = {"model.embed_tokens.weight": body.pop("model.embed_tokens.weight")}
    return write(folder, {"model-1.safetensors": first | embeddings, "model-2.safetensors": second | body})


def head(path: Path, shapes: Shapes = NEW, value: float = 3, **more: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({**filled(shapes, value), **more}, path)
    return path


def links(store: Path, folder: Path) -> Path:
    """A model's folder as it is made on a box: hard links to files of the store."""
    folder.mkdir(parents=True)
    for path in store.iterdir():
        os.link(path, folder / path.name)
    return folder


def tree(folder: Path, times: bool = True) -> dict[str, Any]:
    """What is in a folder: content or target, and inode and time of change where asked; the folder's own too."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        seen = os.lstat(path)
        kind: Any = "folder" if path.is_dir() and not path.is_symlink() else None
        what = kind or (os.readlink(path) if path.is_symlink() else path.read_bytes())
        found[str(path.relative_to(folder))] = (what, seen.st_ino, seen.st_mtime_ns) if times else what
    return found
