"""Decoder layers by kind, and the gated-delta-net layers' sizes, from config.json."""

from __future__ import annotations

from typing import Any, Literal, cast

from gpufleet.architecture import Layers, Linear
from gpufleet.checkpoint.config import Config, UnknownFact
from hostkit.safetensors import brief, quoted

KINDS = ("full_attention", "sliding_attention", "linear_attention")
# Families whose config.json has a window and no word on which layers have it; from their code in transformers.
ALL_SLIDE = ("mistral", "mixtral", "phi3", "starcoder2")
EVERY_OTHER_SLIDES = ("gemma2",)  # the first layer does
MOST = 10_000  # layers; the largest models have some hundred
STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def layers(config: Config) -> Layers:
    """How many layers there are of each kind. Raises UnknownFact for kinds and patterns that are not known."""
    kinds = _kinds(config)
    unknown = sorted({kind for kind in kinds if kind not in KINDS})
    if unknown:
        raise UnknownFact(
            f"{config.place}: layers of kind {brief(', '.join(unknown))} are not known, only {', '.join(KINDS)}"
        )
    return Layers(**{kind: kinds.count(kind) for kind in KINDS})


def _kinds(config: Config) -> list[str]:
    count = config.number("num_hidden_layers")
    if count > MOST:
        raise UnknownFact(f"{config.place}: num_hidden_layers is {count}, more than {MOST}")
    listed = config.any("layer_types")
    if listed is not None:
        if not isinstance(listed, list) or len(listed) != count:
            long = len(listed) if isinstance(listed, list) else "no"
            raise UnknownFact(f"{config.place}: layer_types has {long} entries, num_hidden_layers is {count}")
        return [str(kind) for kind in listed]
    if (every := config.optional("full_attention_interval")) is not None:
        return [KINDS[0] if (at + 1) % every == 0 else "linear_attention" for at in range(count)]
    if config.optional("linear_num_value_heads") is not None:
        raise UnknownFact(f"{config.place} has linear layers, and neither layer_types nor full_attention_interval")
    if config.optional("sliding_window") is None or config.any("use_sliding_window") is False:
        return [KINDS[0]] * count
    return _sliding(config, count)


def _sliding(config: Config, count: int) -> list[str]:
    family = str(config.any("model_type") or config.family)
    if (every := config.optional("sliding_window_pattern")) is not None:
        return [KINDS[0] if (at + 1) % every == 0 else KINDS[1] for at in range(count)]
    if config.any("use_sliding_window") is True and isinstance(first := config.any("max_window_layers"), int):
        return [KINDS[0] if at < first else KINDS[1] for at in range(count)]
    if family in ALL_SLIDE:
        return [KINDS[1]] * count
    if family in EVERY_OTHER_SLIDES:
        return [KINDS[at % 2 == 0] for at in range(count)]
    raise UnknownFact(f"{config.place} has sliding_window, and neither layer_types nor sliding_window_pattern")


def linear(config: Config, found: Layers) -> Linear | None:
    """The gated-delta-net layers' heads and widths; None where there are no such layers."""
    if not found.linear_attention:
        return None
    return Linear(
        key_heads=config.number("linear_num_key_heads"),
        value_heads=config.number("linear_num_value_heads"),
        key_dim=config.number("linear_key_head_dim"),
        value_dim=config.number("linear_value_head_dim"),
        conv_kernel=config.number("linear_conv_kernel_dim"),
        state_bytes=_state_bytes(config),
    )


def _state_bytes(config: Config) -> Literal[2, 4]:
    """Without `mamba_ssm_dtype` vLLM keeps the state in the model's own type."""
    key = next((key for key in ("mamba_ssm_dtype", "dtype", "torch_dtype") if config.any(key) is not None), None)
    said: Any = config.any(key) if key else config.whole.get("dtype", config.whole.get("torch_dtype"))
    if said is None:
        raise UnknownFact(f"{config.place} has no mamba_ssm_dtype, and no dtype either")
    size = STATE_BYTES.get(str(said).removeprefix("torch."))
    if size is None:
        raise UnknownFact(f"{config.place}: {key or 'dtype'} is {quoted(said)}, not one of {', '.join(STATE_BYTES)}")
    return cast(Literal[2, 4], size)
