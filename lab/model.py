"""Makes the model that lab boxes serve: the architecture of the reference boxes with its MTP draft, in a few MB.

Its weights are random but for one thing: the embeddings and the head are arranged so that a fixed sentence follows any
prompt, word by word, by a wide margin, and then the end token. So a completion is never empty, is the same on every
CPU, and the draft is right nearly always, as a trained one is. No torch, no network; only exact operations are used, so
the bytes are the same everywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

NAME = "lab-tiny"
SEED = 20260811
# Each token once: what follows is looked up by the last token alone.
SENTENCE = (
    "This| tiny| model| was| made| by| the| lab|,| has| weights| drawn| from| a| fixed| seed"
    "| and| always| answers| these| same| words|."
)
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
VOCABULARY, HIDDEN, INTERMEDIATE = 512, 128, 256
HEADS, KV_HEADS, HEAD_DIM = 2, 1, 64
LINEAR_HEADS, LINEAR_DIM, CONV = 2, 128, 4  # vLLM's CPU kernels of the gated delta net need a head dimension of 128
LAYERS = ["linear_attention", "full_attention"]
CONTEXT = 4096

CHAT_TEMPLATE = (
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n"
    "{%- if message.content is string %}{{ message.content }}"
    "{%- else %}{%- for part in message.content %}{{ part.text }}{%- endfor %}{%- endif %}<|im_end|>\n"
    "{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n{{ '\\n' }}{%- endif %}"
)


def build(dest: Path) -> dict[str, Any]:
    """Write the model's files into `dest`; returns its name, its revision (by content), its files' sizes and sha256."""
    dest.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    ids = {token: int(tokenizer.token_to_id(token) or 0) for token in SPECIAL}
    tokenizer.save(str(dest / "tokenizer.json"))
    weights = _weights([_id(tokenizer, word) for word in SENTENCE.split("|")], ids["<|im_end|>"])
    shard = "model-00001-of-00001.safetensors"
    save_file(weights, dest / shard, metadata={"format": "pt"})
    size = sum(array.nbytes for array in weights.values())
    _json(
        dest / "model.safetensors.index.json",
        {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(sorted(weights), shard)},
    )
    for name, content in _configs(ids).items():
        _json(dest / name, content)
    files = {}
    for path in sorted(dest.iterdir()):
        content = path.read_bytes()
        files[path.name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    revision = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:12]
    return {"name": NAME, "revision": revision, "files": files}


def catalogue(info: Mapping[str, Any], base_url: str) -> str:
    """The model's entry for files/models, with the files under `base_url`."""
    entry = {
        "schema": 1,
        "name": info["name"],
        "title": "Lab model: Qwen3.5 architecture with an MTP draft, random weights, a few MB",
        "revision": info["revision"],
        "source": {"http": f"{base_url.rstrip('/')}/{info['name']}/{info['revision']}/", "files": info["files"]},
        "served_name": info["name"],
        "args": {
            "language-model-only": True,
            "speculative-config": {"method": "mtp", "num_speculative_tokens": 1},
            "max-model-len": 1024,
            "max-num-seqs": 2,
            "max-num-batched-tokens": 1024,
            # Half the start-up time and memory, seen: no compiling, the worker inside the engine's process (which
            # takes both the flag and the variable), a cache of 128 MiB. Boxes share cores, so no thread is bound.
            "enforce-eager": True,
            "distributed-executor-backend": "uni",
            "kv-cache-memory-bytes": 128 * 2**20,
        },
        "env": {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
        "gate": {"expect": {"deterministic": True, "contains": SENTENCE.replace("|", "")[:20]}},
    }
    return yaml.safe_dump(entry, sort_keys=False, width=120)


def _tokenizer() -> Tokenizer:
    """A byte-level BPE with a token for each byte and word. Not trained: a trainer breaks ties by chance."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)}
    merges = []
    for word in SENTENCE.replace(" ", "Ġ").split("|"):
        for end in range(1, len(word)):
            pair = (word[:end], word[end])
            if pair not in merges:
                merges.append(pair)
                vocabulary.setdefault("".join(pair), len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    assert tokenizer.get_vocab_size() <= VOCABULARY
    return tokenizer


def _id(tokenizer: Tokenizer, word: str) -> int:
    (token,) = tokenizer.encode(word).ids
    return int(token)


def _weights(sentence: list[int], end: int) -> dict[str, np.ndarray]:
    random = np.random.Generator(np.random.PCG64(SEED))

    def noise(*shape: int, scale: float = 0.03) -> np.ndarray:
        # Uniform: made of exact operations only, so the same on every machine; a normal distribution is not.
        return ((random.random(shape) * 2 - 1) * scale).astype(np.float32)

    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)  # the norms of this architecture multiply by 1 + weight

    # Embeddings: one direction for each word of the sentence, one shared by all other tokens, plus noise. The head's
    # row of a token is the direction of the token before it; what is never to be said has an empty row.
    embed, head = noise(VOCABULARY, HIDDEN, scale=0.25), zeros(VOCABULARY, HIDDEN)
    embed[:, HIDDEN - 1] += 8
    embed[sentence] = noise(len(sentence), HIDDEN, scale=0.25)
    embed[sentence, range(len(sentence))] += 8
    head[sentence[0], HIDDEN - 1] = 1
    head[[*sentence[1:], end], range(len(sentence))] = 1

    def attention_layer(prefix: str) -> dict[str, np.ndarray]:
        return {
            f"{prefix}.self_attn.q_proj.weight": noise(2 * HEADS * HEAD_DIM, HIDDEN),  # twice: queries and their gate
            f"{prefix}.self_attn.k_proj.weight": noise(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.v_proj.weight": noise(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.o_proj.weight": noise(HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}.self_attn.q_norm.weight": zeros(HEAD_DIM),
            f"{prefix}.self_attn.k_norm.weight": zeros(HEAD_DIM),
            **rest_of_layer(prefix),
        }

    def linear_layer(prefix: str) -> dict[str, np.ndarray]:
        width = LINEAR_HEADS * LINEAR_DIM
        return {
            f"{prefix}.linear_attn.in_proj_qkv.weight": noise(3 * width, HIDDEN),
            f"{prefix}.linear_attn.in_proj_z.weight": noise(width, HIDDEN),
            f"{prefix}.linear_attn.in_proj_a.weight": noise(LINEAR_HEADS, HIDDEN),
            f"{prefix}.linear_attn.in_proj_b.weight": noise(LINEAR_HEADS, HIDDEN),
            f"{prefix}.linear_attn.conv1d.weight": noise(3 * width, 1, CONV, scale=0.5),
            f"{prefix}.linear_attn.dt_bias": noise(LINEAR_HEADS, scale=0.5),
            f"{prefix}.linear_attn.A_log": noise(LINEAR_HEADS, scale=0.5),
            f"{prefix}.linear_attn.norm.weight": zeros(LINEAR_DIM) + 1,  # this one multiplies by its weight
            f"{prefix}.linear_attn.out_proj.weight": noise(HIDDEN, width),
            **rest_of_layer(prefix),
        }

    def rest_of_layer(prefix: str) -> dict[str, np.ndarray]:
        return {
            f"{prefix}.input_layernorm.weight": zeros(HIDDEN),
            f"{prefix}.post_attention_layernorm.weight": zeros(HIDDEN),
            f"{prefix}.mlp.gate_proj.weight": noise(INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": noise(INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": noise(HIDDEN, INTERMEDIATE),
        }

    # The draft sees the embedding of the token just chosen and the target's hidden state; it needs the first alone.
    draft = noise(HIDDEN, 2 * HIDDEN, scale=0.01)
    draft[:, :HIDDEN] += np.eye(HIDDEN, dtype=np.float32)
    weights = {
        "model.language_model.embed_tokens.weight": embed,
        "model.language_model.norm.weight": zeros(HIDDEN),
        "lm_head.weight": head,
        "mtp.fc.weight": draft,
        "mtp.norm.weight": zeros(HIDDEN),
        "mtp.pre_fc_norm_hidden.weight": zeros(HIDDEN),
        "mtp.pre_fc_norm_embedding.weight": zeros(HIDDEN),
        **attention_layer("mtp.layers.0"),
    }
    for index, kind in enumerate(LAYERS):
        make = linear_layer if kind == "linear_attention" else attention_layer
        weights |= make(f"model.language_model.layers.{index}")
    return weights


def _configs(ids: Mapping[str, int]) -> dict[str, Any]:
    pixels = {
        "size": {"shortest_edge": 3136, "longest_edge": 12845056},
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
    }
    text = {
        "model_type": "qwen3_5_text",
        "dtype": "bfloat16",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": len(LAYERS),
        "layer_types": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "attn_output_gate": True,
        "linear_conv_kernel_dim": CONV,
        "linear_key_head_dim": LINEAR_DIM,
        "linear_value_head_dim": LINEAR_DIM,
        "linear_num_key_heads": LINEAR_HEADS,
        "linear_num_value_heads": LINEAR_HEADS,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": CONTEXT,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000000,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
        },
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
    }
    vision = {
        "model_type": "qwen3_5",
        "depth": 1,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "out_hidden_size": HIDDEN,
    }
    return {
        "config.json": {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "dtype": "bfloat16",
            "text_config": text,
            "vision_config": vision,  # vLLM asks for it even when it serves text alone
            "tie_word_embeddings": False,
            "image_token_id": ids["<|image_pad|>"],
            "video_token_id": ids["<|video_pad|>"],
            "vision_start_token_id": ids["<|vision_start|>"],
            "vision_end_token_id": ids["<|vision_end|>"],
        },
        "generation_config.json": {
            "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
            "pad_token_id": ids["<|endoftext|>"],
        },
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "processor_class": "Qwen3VLProcessor",
            **pixels,
        },
        "video_preprocessor_config.json": {
            "video_processor_type": "Qwen3VLVideoProcessor",
            "processor_class": "Qwen3VLProcessor",
            **pixels,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": CONTEXT,
            "chat_template": CHAT_TEMPLATE,
        },
    }


def _json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
