"""A small checkpoint in a folder: shards, index and the files beside them, each of them as a test wants it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BYTES = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4, "F8_E4M3": 1, "U8": 1}
TEMPLATE = (
    "{%- if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>\n{%- endif %}"
    "{% for message in messages %}<|{{ message.role }}|>"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking %}<think>{% endif %}{% endif %}"
)
CONFIG: dict[str, Any] = {
    "model_type": "qwen3_5",
    "torch_dtype": "bfloat16",
    "text_config": {
        "mtp_num_hidden_layers": 1,
        "num_hidden_layers": 4,
        "layer_types": ["full_attention"] * 4,
        "hidden_size": 4,
        "intermediate_size": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 2,
        "vocab_size": 16,
        "max_position_embeddings": 512,
    },
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128},
}
TOKENIZER: dict[str, Any] = {"tokenizer_class": "Qwen2Tokenizer"}
BYTE_LEVEL: dict[str, Any] = {"model": {"type": "BPE"}, "decoder": {"type": "ByteLevel"}}
SHARDS: dict[str, dict[str, tuple[str, list[int]]]] = {
    "model-00001-of-00002.safetensors": {
        "model.language_model.layers.0.mlp.up_proj.qweight": ("I32", [8, 4]),
        "model.language_model.layers.0.mlp.up_proj.scales": ("F16", [1, 8]),
        "model.visual.patch_embed.weight": ("BF16", [4, 4]),
    },
    "model-00002-of-00002.safetensors": {
        "model.language_model.embed_tokens.weight": ("BF16", [16, 4]),
        "mtp.fc.weight": ("BF16", [4, 8]),
        "mtp.norm.weight": ("BF16", [4]),
    },
}


def shard(path: Path, tensors: Mapping[str, tuple[str, list[int]]]) -> None:
    """A safetensors file with these tensors, filled with what tells them apart."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for number, (name, (dtype, shape)) in enumerate(tensors.items()):
        count = BYTES[dtype]
        for length in shape:
            count *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + count]}
        data += bytes([number + 1]) * count
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def checkpoint(
    folder: Path,
    *,
    config: Mapping[str, Any] = CONFIG,
    tokenizer: Mapping[str, Any] = TOKENIZER,
    template: str | None = TEMPLATE,
    shards: Mapping[str, Mapping[str, tuple[str, list[int]]]] = SHARDS,
) -> Path:
    """A whole checkpoint in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensors in shards.items():
        shard(folder / name, tensors)
    index(folder, {tensor: name for name, tensors in shards.items() for tensor in tensors})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(BYTE_LEVEL), encoding="utf-8")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def index(folder: Path, weight_map: Mapping[str, str]) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")


def pins(folder: Path) -> dict[str, dict[str, Any]]:
    """What a page says of its files."""
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    return {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in found.items()}
