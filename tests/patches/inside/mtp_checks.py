"""0001: the MTP draft without the target's quantisation. Its layers are stand-ins, which note what they are given."""

import os
from types import SimpleNamespace
from typing import Any
from unittest import mock

import vllm
from engine import log_of, refusal
from torch import nn
from vllm import envs
from vllm.config import CompilationConfig, CompilationMode
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.models import qwen3_5_mtp as mtp

VARIABLE = "VLLM_QWOPUS_MTP_BF16_DRAFT"


class Layer(nn.Module):
    """A layer as it was built: the quantisation of the target that reached it, by name."""

    def __init__(self, quant_config: Any) -> None:
        super().__init__()
        self.built_with = quant_config and quant_config.get_name()
        self.quant_method = None if quant_config else UnquantizedLinearMethod()


def target(quantization: str | None, dynamic: dict[str, object] | None = None) -> Any:
    """The configuration of a target with this quantisation, and the exclusions in its checkpoint."""
    text = SimpleNamespace(
        hidden_size=8, vocab_size=16, num_hidden_layers=4, mtp_num_hidden_layers=2, rms_norm_eps=1e-6
    )
    hf_config = SimpleNamespace(quantization_config={"dynamic": dynamic or {}})
    return SimpleNamespace(
        model_config=SimpleNamespace(hf_text_config=text, hf_config=hf_config),
        quant_config=quantization and SimpleNamespace(get_name=lambda: quantization),
        compilation_config=CompilationConfig(mode=CompilationMode.NONE),
    )


def build(config: Any, decoder_layer: Any = lambda config, **_: Layer(config.quant_config)) -> Any:
    """The draft of such a target."""
    with (
        mock.patch.object(mtp, "VocabParallelEmbedding", lambda *_: nn.Identity()),
        mock.patch.object(mtp, "ColumnParallelLinear", lambda *_, quant_config, **__: Layer(quant_config)),
        mock.patch.object(mtp, "Qwen3_5DecoderLayer", decoder_layer),
        mock.patch.object(mtp, "Qwen3_5RMSNorm", lambda *_, **__: nn.Identity()),
    ):
        return mtp.Qwen3_5MultiTokenPredictor(vllm_config=config, prefix="mtp")


def draft(
    quantization: str | None, value: str | None, dynamic: dict[str, object] | None = None
) -> tuple[list[str | None], list[str]]:
    """What the draft's fc and its two layers are built with, the variable at a value (None: unset), and the log."""
    config = target(quantization, dynamic)
    original = config.quant_config
    with mock.patch.dict(os.environ, {} if value is None else {VARIABLE: value}), log_of(mtp) as lines:
        built = build(config)
    assert config.quant_config is original, "the target's own is put back"
    return [built.fc.built_with, *(it.built_with for it in built.layers)], lines


def check_fc_and_layers_are_unquantised() -> None:
    for quantization in ("auto_awq", "auto_gptq", "compressed-tensors", "modelopt_fp4"):
        built, lines = draft(quantization, "1")
        assert built == [None] * 3, (quantization, built)
        assert lines == [
            f"{VARIABLE} is on: target quantization {quantization}, MTP draft built without it.",
            "MTP draft as built: fc UnquantizedLinearMethod, decoder layers UnquantizedLinearMethod.",
        ]


def check_an_fp8_draft_stays() -> None:
    built, lines = draft("fp8", "1")
    assert built == ["fp8"] * 3, built
    assert lines[0] == f"{VARIABLE} is on: target quantization fp8, MTP draft built like the target."


def check_an_unquantised_target() -> None:
    built, lines = draft(None, "1")
    assert built == [None] * 3
    assert lines[0] == f"{VARIABLE} is on: target quantization none, MTP draft built like the target."


def check_off_changes_nothing() -> None:
    for value in (None, "0"):
        assert draft("auto_awq", value) == (["auto_awq"] * 3, [])
        assert draft("modelopt_fp4", value) == ([None, "modelopt_fp4", "modelopt_fp4"], [])


def check_exclusions_of_gptq() -> None:
    """vLLM 0.27.1 itself reads them for the layers, 0.24.0 does not; the patch leaves that as it is."""
    layers = "auto_gptq" if vllm.__version__ == "0.24.0" else None
    assert draft("auto_gptq", None, {"-:.*mtp.*": {}}) == (["auto_gptq", layers, layers], [])
    assert draft("auto_gptq", "1", {"-:.*mtp.*": {}})[0] == [None] * 3


def check_put_back_when_building_fails() -> None:
    config = target("auto_awq")
    original, seen = config.quant_config, []

    def failing(config: Any, **_: object) -> Layer:
        seen.append(config.quant_config)
        raise RuntimeError("no memory")

    with mock.patch.dict(os.environ, {VARIABLE: "1"}), log_of(mtp):
        assert refusal(build, config, failing) == "RuntimeError: no memory"
    assert seen == [None] and config.quant_config is original


def check_the_variable_is_known() -> None:
    with mock.patch.dict(os.environ, {VARIABLE: "1"}):
        envs.validate_environ(hard_fail=True)
        assert envs.VLLM_QWOPUS_MTP_BF16_DRAFT is True
    assert envs.VLLM_QWOPUS_MTP_BF16_DRAFT is False, "the default"
