"""0002 and 0003: FlashInfer on compute capability 7.5, attention and sampling."""

import os
import sys
from unittest import mock

import torch
from engine import Anything, card, log_of, refusal
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backends.flashinfer import FlashInferBackend
from vllm.v1.attention.selector import AttentionSelectorConfig
from vllm.v1.sample.ops import topk_topp_sampler as sampler

VARIABLE = "VLLM_USE_FLASHINFER_SAMPLER"


def check_capabilities() -> None:
    allowed = {it: FlashInferBackend.supports_compute_capability(DeviceCapability(*it)) for it in [
        (7, 0), (7, 2), (7, 5), (8, 0), (8, 6), (9, 0), (12, 0), (12, 1), (12, 2)
    ]}  # fmt: skip
    assert [it for it, yes in allowed.items() if not yes] == [(7, 0), (7, 2), (12, 2)], allowed


def check_chosen_for_an_fp8_kv_cache() -> None:
    """The CUDA platform's own choice, in its order of preference."""
    with mock.patch.dict(sys.modules, {"vllm._C_stable_libtorch": Anything("vllm._C_stable_libtorch")}):
        from vllm.platforms.cuda import CudaPlatformBase

    wanted = AttentionSelectorConfig(head_size=256, dtype=torch.float16, kv_cache_dtype="fp8_e4m3", block_size=None)
    chosen = {}
    for capability in [(7, 0), (7, 5), (8, 6)]:
        valid, _ = CudaPlatformBase.get_valid_backends(DeviceCapability(*capability), wanted)
        chosen[capability] = min(valid, key=lambda it: it.priority).backend.name
    assert chosen == {(7, 0): "TRITON_ATTN", (7, 5): "FLASHINFER", (8, 6): "FLASHINFER"}, chosen


def decision(capability: tuple[int, int], value: str | None) -> tuple[bool, list[str]]:
    """Whether FlashInfer samples on such a card with the variable at a value (None: unset), and what is logged."""
    with (
        mock.patch.dict(os.environ, {} if value is None else {VARIABLE: value}),
        mock.patch.object(sampler, "current_platform", card(*capability)),
        log_of(sampler) as lines,
    ):
        return sampler.flashinfer_sampler_supported(), lines


def check_sampler_on_75_is_asked_for() -> None:
    yes, lines = decision((7, 5), "1")
    assert yes
    assert lines == [
        "Using FlashInfer for top-p & top-k sampling on compute capability 7.5, "
        "as VLLM_USE_FLASHINFER_SAMPLER=1 asks for."
    ]


def check_sampler_on_75_is_off_by_default() -> None:
    yes, (line,) = decision((7, 5), None)
    assert not yes
    assert "compute capability 7.5 uses it only with VLLM_USE_FLASHINFER_SAMPLER=1; falling back" in line, line
    assert decision((7, 5), "0") == (
        False,
        ["FlashInfer top-p/top-k sampling disabled via VLLM_USE_FLASHINFER_SAMPLER=0."],
    )


def check_sampler_elsewhere_is_as_it_was() -> None:
    for value in (None, "1"):
        assert decision((8, 6), value) == (True, ["Using FlashInfer for top-p & top-k sampling."])
    assert decision((7, 0), None)[0] is False
    assert "unsupported compute capability 7.0. Unset" in refusal(decision, (7, 0), "1")


def check_the_sampler_layer_follows() -> None:
    with mock.patch.object(sampler, "current_platform", card(7, 5)), log_of(sampler):
        with mock.patch.dict(os.environ, {VARIABLE: "1"}):
            asked = sampler.TopKTopPSampler()
        by_default = sampler.TopKTopPSampler()
    assert (asked.forward, by_default.forward) == (asked.forward_cuda, by_default.forward_native)
