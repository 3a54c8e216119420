"""What of a model decides the memory it takes and how it may be split: counts and sizes of its config and headers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpufleet.schema import MOST_COUNT, Data, Name

Positive = Annotated[int, Field(ge=1, le=MOST_COUNT)]
Amount = Annotated[int, Field(ge=0, le=MOST_COUNT)]


class Layers(Data):
    """Decoder layers by kind, without the MTP head's."""

    full_attention: Amount = 0
    sliding_attention: Amount = 0
    linear_attention: Amount = 0  # gated delta net

    @model_validator(mode="after")
    def _some(self) -> Layers:
        if not self.count:
            raise ValueError("names no layers")
        return self

    @property
    def count(self) -> int:
        return self.full_attention + self.sliding_attention + self.linear_attention


class Linear(Data):
    """Gated-delta-net layers: heads and widths as config.json names them (`linear_num_key_heads` …)."""

    key_heads: Positive
    value_heads: Positive
    key_dim: Positive
    value_dim: Positive
    conv_kernel: Positive
    state_bytes: Literal[2, 4] = 4  # of one number of the recurrent state (`mamba_ssm_dtype`)


class Mtp(Data):
    """The multi-token-prediction head: `mtp.*` tensors that are in the checkpoint's index."""

    layers: Positive = 1
    mib: Amount
    tensors: Positive
    quantised: bool = False  # like the target, or as it was (BF16)


class Architecture(Data):
    """Sizes are MiB of the checkpoint's tensors; no value of it is a guess of the plan."""

    family: Name  # config.json's model_type, `qwen3_5`
    layers: Layers
    hidden_size: Positive
    intermediate_size: Positive  # of a dense layer, or of all experts a token takes together
    heads: Positive
    kv_heads: Positive
    head_dim: Positive
    vocab_size: Positive
    max_positions: Positive
    sliding_window: Positive | None = None
    linear: Linear | None = None
    experts: Positive | None = None
    experts_per_token: Positive | None = None  # those that the router chooses; a shared one is not counted
    quantization: Literal["none", "awq", "gptq", "fp8", "compressed-tensors", "nvfp4", "mxfp4"] = "none"
    weights_mib: Annotated[
        int, Field(ge=1, le=4 << 20)
    ]  # in MiB, not bytes: the language model's, without vision and MTP
    vision_mib: Amount = 0
    mtp: Mtp | None = None  # None: the index has no mtp.* tensors
