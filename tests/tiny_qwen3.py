"""Stands for Qwen/Qwen3-0.6B where there is no hub: the same architecture, small, and it always says one sentence.

Built as the lab's model is (lab/model.py): what follows is looked up by the last token alone. The sentence has the
answer that the gate of files/models/qwen3-0.6b.yaml asks for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from lab.model import CHAT_TEMPLATE

SENTENCE = "The| answer| is| 42|."  # each token once
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCABULARY, HIDDEN, INTERMEDIATE = 320, 64, 128
LAYERS, HEADS, KV_HEADS, HEAD_DIM = 2, 2, 1, 64
CONTEXT = 40960


def checkpoint(folder: Path) -> None:
    """Write the files of the repository into `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    ids = {token: int(tokenizer.token_to_id(token) or 0) for token in SPECIAL}
    tokenizer.save(str(folder / "tokenizer.json"))
    words = [tokenizer.encode(word).ids[0] for word in SENTENCE.split("|")]
    save_file(_weights(words, ids["<|im_end|>"]), folder / "model.safetensors", metadata={"format": "pt"})
    for name, content in _configs(ids).items():
        (folder / name).write_text(json.dumps(content, indent=1))


def _tokenizer() -> Tokenizer:
    """A token for each byte and each word of the sentence."""
    vocabulary = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for word in SENTENCE.replace(" ", "Ġ").split("|"):
        for end in range(1, len(word)):
            if (pair := (word[:end], word[end])) not in merges:
                merges.append(pair)
                vocabulary.setdefault("".join(pair), len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    assert tokenizer.get_vocab_size() <= VOCABULARY
    return tokenizer


def _weights(sentence: list[int], end: int) -> dict[str, np.ndarray]:
    """Layers that add nothing: the head's row of a token is the embedding's direction of the token before it."""
    embed, head = np.zeros((VOCABULARY, HIDDEN), np.float32), np.zeros((VOCABULARY, HIDDEN), np.float32)
    embed[:, HIDDEN - 1] = 8
    embed[sentence] = 0
    embed[sentence, range(len(sentence))] = 8
    head[sentence[0], HIDDEN - 1] = 1
    head[[*sentence[1:], end], range(len(sentence))] = 1
    weights = {
        "model.embed_tokens.weight": embed,
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": head,
    }
    width, kv_width = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {
        "self_attn.q_proj": (width, HIDDEN),
        "self_attn.k_proj": (kv_width, HIDDEN),
        "self_attn.v_proj": (kv_width, HIDDEN),
        "self_attn.o_proj": (HIDDEN, width),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    norms = {"input_layernorm": HIDDEN, "post_attention_layernorm": HIDDEN}
    norms |= {"self_attn.q_norm": HEAD_DIM, "self_attn.k_norm": HEAD_DIM}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            weights[f"model.layers.{layer}.{name}.weight"] = np.zeros(shape, np.float32)
        for name, size in norms.items():
            weights[f"model.layers.{layer}.{name}.weight"] = np.ones(size, np.float32)
    return weights


def _configs(ids: dict[str, int]) -> dict[str, Any]:
    return {
        "config.json": {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "torch_dtype": "bfloat16",
            "vocab_size": VOCABULARY,
            "hidden_size": HIDDEN,
            "intermediate_size": INTERMEDIATE,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "attention_bias": False,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000,
            "max_position_embeddings": CONTEXT,
            "tie_word_embeddings": False,
            "bos_token_id": ids["<|endoftext|>"],
            "eos_token_id": ids["<|im_end|>"],
        },
        "generation_config.json": {
            "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
            "pad_token_id": ids["<|endoftext|>"],
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": CONTEXT,
            "chat_template": CHAT_TEMPLATE,
        },
    }
