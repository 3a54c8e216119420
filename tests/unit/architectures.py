"""Models of the recipes as their pages describe them; docs/reference/memory.md derives the sizes of checkpoints."""

from __future__ import annotations

from typing import Any

from gpufleet.architecture import Architecture
from gpufleet.schema import read

GB = 10**9 / (1 << 20)

# Qwen3.5-27B and what is made of it: 64 layers, every fourth of full attention
QWEN_27B: dict[str, Any] = {
    "family": "qwen3_5",
    "layers": {"full_attention": 16, "linear_attention": 48},
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "heads": 24,
    "kv_heads": 4,
    "head_dim": 256,
    "vocab_size": 248320,
    "max_positions": 262144,
    "linear": {"key_heads": 16, "value_heads": 48, "key_dim": 128, "value_dim": 128, "conv_kernel": 4},
    "vision_mib": 879,
}

# Qwen3.5-35B-A3B: 40 layers, 256 experts of which 8 and a shared one answer
QWEN_35B: dict[str, Any] = {
    "family": "qwen3_5_moe",
    "layers": {"full_attention": 10, "linear_attention": 30},
    "hidden_size": 2048,
    "intermediate_size": 9 * 512,
    "heads": 16,
    "kv_heads": 2,
    "head_dim": 256,
    "vocab_size": 248320,
    "max_positions": 262144,
    "linear": {"key_heads": 16, "value_heads": 32, "key_dim": 128, "value_dim": 128, "conv_kernel": 4},
    "experts": 256,
    "experts_per_token": 8,
    "vision_mib": 852,
}

# Qwen3.5-122B-A10B: 48 layers; the pool that redlinedtm's V100s logged is whole blocks of it
QWEN_122B: dict[str, Any] = QWEN_35B | {
    "layers": {"full_attention": 12, "linear_attention": 36},
    "hidden_size": 3072,
    "intermediate_size": 9 * 1024,
    "heads": 32,
    "linear": {"key_heads": 16, "value_heads": 64, "key_dim": 128, "value_dim": 128, "conv_kernel": 4},
}


def architecture(**values: Any) -> Architecture:
    return read(Architecture, values, "test")


def model(base: dict[str, Any], **changes: Any) -> Architecture:
    return architecture(**(base | changes))


MTP_BF16 = {"mib": 810, "tensors": 15}
FP8_27B = model(QWEN_27B, weights_mib=28098, quantization="fp8", mtp={"mib": 455, "tensors": 22, "quantised": True})
AWQ_27B = model(QWEN_27B, weights_mib=18338, quantization="awq", mtp=MTP_BF16)
# club-3090 #142: "Checkpoint size: 17.69 GiB", 18115 MiB, less vision and MTP
AUTOROUND_27B = model(QWEN_27B, weights_mib=16426, quantization="gptq", mtp=MTP_BF16)
AWQ_35B = model(QWEN_35B, weights_mib=22428, quantization="awq", mtp={"mib": 1611, "tensors": 19})
AWQ_122B = model(
    QWEN_122B, weights_mib=73432 - 852, quantization="awq"
)  # 77 GB, of which vision about as in the 35B model
# The same if the 19.3 GB on each of four cards, vision among them, are GiB as vLLM logs them
AWQ_122B_LARGE = model(QWEN_122B, weights_mib=79053 - 852, quantization="awq")
FP8_35B = model(QWEN_35B, weights_mib=34048, quantization="fp8")

# Qwen3-0.6B: nothing but full attention
QWEN_06B = architecture(
    family="qwen3",
    layers={"full_attention": 28},
    hidden_size=1024,
    intermediate_size=3072,
    heads=16,
    kv_heads=8,
    head_dim=128,
    vocab_size=151936,
    max_positions=40960,
    weights_mib=1137,
)

# gpt-oss-20b: full attention and a window of 128 tokens in turn
GPT_OSS_20B = architecture(
    family="gpt_oss",
    layers={"full_attention": 12, "sliding_attention": 12},
    hidden_size=2880,
    intermediate_size=4 * 2880,
    heads=64,
    kv_heads=8,
    head_dim=64,
    vocab_size=201088,
    max_positions=131072,
    sliding_window=128,
    experts=32,
    experts_per_token=4,
    weights_mib=13100,
)
