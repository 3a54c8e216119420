"""What public checkpoints are told to be, from their own config.json and headers; sizes beside published ones."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from gpufleet.architecture import Architecture
from gpufleet.checkpoint import quantization, tensors
from gpufleet.checkpoint.config import UnknownFact
from gpufleet.checkpoint.facts import facts
from gpufleet.checkpoint.layers import layers
from tests.unit.architectures import QWEN_35B
from tests.unit.checkpoints import (
    awq,
    config,
    dense,
    fp8_blocks,
    fp8_tensor,
    gpt_oss,
    gptq,
    laid_out,
    nvfp4,
    nvfp4_packed,
    packed_int4,
    plain,
    qwen,
)

GEMMA_NORMS = ("pre_feedforward_layernorm", "post_feedforward_layernorm")


@cache
def headers(name: str) -> dict[str, Any]:
    whole = config(name)
    match name:
        case "qwen3.6-27b":
            return qwen(whole, draft=plain)
        case "qwen3.6-27b-fp8" | "qwen3.6-35b-a3b-fp8":
            return qwen(whole, fp8_blocks, draft=fp8_blocks)
        case "qwen3.6-35b-a3b-nvfp4":
            return qwen(whole, nvfp4, attend=fp8_tensor, linear=fp8_tensor, head=nvfp4, draft=plain, stacked=True)
        case "qwen3.6-35b-a3b-gptq-int4":
            return qwen(whole, experts=gptq, draft=plain)
        case "ornith-1.5-35b-a3b-awq-int4":
            return qwen(whole, experts=packed_int4, draft=plain)
        case "qwen3-coder-next-nvfp4":
            return qwen(whole, nvfp4_packed, linear=plain)
        case "gemma-3-270m":
            return dense(whole, more=GEMMA_NORMS, head=False)
        case "gpt-oss-20b":
            return gpt_oss(whole)
        case "llama-3-8b-fp8":
            return dense(whole, fp8_tensor, qk_norm=False)
        case "wizardcoder-python-7b-awq":
            return dense(whole, awq, qk_norm=False)
        case _:
            return dense(whole)


@cache
def told(name: str) -> Architecture:
    return facts(config(name), headers(name)).architecture


# (checkpoint, family, quantisation, dense, layers: full, sliding, linear, MTP: tensors and whether quantised)
PUBLIC = [
    ("qwen3.6-27b", "qwen3_5", "none", True, (16, 0, 48), (15, False)),
    ("qwen3.6-27b-fp8", "qwen3_5", "fp8", True, (16, 0, 48), (22, True)),
    ("qwen3.6-35b-a3b-fp8", "qwen3_5_moe", "fp8", False, (10, 0, 30), (1560, True)),
    ("qwen3.6-35b-a3b-nvfp4", "qwen3_5_moe", "nvfp4", False, (10, 0, 30), (19, False)),
    ("qwen3.6-35b-a3b-gptq-int4", "qwen3_5_moe", "gptq", False, (10, 0, 30), (785, False)),
    ("ornith-1.5-35b-a3b-awq-int4", "qwen3_5_moe", "compressed-tensors", False, (10, 0, 30), (785, False)),
    ("qwen3-coder-next-nvfp4", "qwen3_next", "nvfp4", False, (12, 0, 36), None),
    ("qwen3-0.6b", "qwen3", "none", True, (28, 0, 0), None),
    ("gemma-3-270m", "gemma3_text", "none", True, (3, 15, 0), None),
    ("gpt-oss-20b", "gpt_oss", "mxfp4", False, (12, 12, 0), None),
    ("llama-3-8b-fp8", "llama", "compressed-tensors", True, (32, 0, 0), None),
    ("wizardcoder-python-7b-awq", "llama", "awq", True, (32, 0, 0), None),
]


@pytest.mark.parametrize(("name", "family", "method", "is_dense", "kinds", "mtp"), PUBLIC, ids=lambda value: str(value))
def test_what_public_checkpoints_are(
    name: str, family: str, method: str, is_dense: bool, kinds: tuple[int, int, int], mtp: tuple[int, bool] | None
) -> None:
    found = told(name)
    assert (found.family, found.quantization, found.experts is None) == (family, method, is_dense)
    by_kind = found.layers
    assert (by_kind.full_attention, by_kind.sliding_attention, by_kind.linear_attention) == kinds
    assert (None if found.mtp is None else (found.mtp.tensors, found.mtp.quantised)) == mtp


# Bytes as published: by the checkpoint's files, its model card, or its number of parameters in 16 bits.
PUBLISHED = [
    ("gpt-oss-20b", 13_761_264_768, 0),  # total_size of its index
    ("gemma-3-270m", 2 * 268_098_176, 0),  # parameters
    ("qwen3-0.6b", 1_503_300_328, 0.0001),  # its one file, header included
    ("qwen3.6-35b-a3b-gptq-int4", 24.4e9, 0.003),  # model card
    ("ornith-1.5-35b-a3b-awq-int4", 24.33 * 2**30, 0.001),  # an engine's notes, all files
    ("wizardcoder-python-7b-awq", 3.89e9, 0.002),  # the hub
    ("qwen3.6-35b-a3b-fp8", 37e9, 0.015),  # model card of one in the same format: ~37 GB
]


@pytest.mark.parametrize(("name", "published", "within"), PUBLISHED)
def test_sizes_agree_with_what_is_published(name: str, published: float, within: float) -> None:
    assert tensors.total(headers(name).values()) == pytest.approx(published, rel=within or 1e-12)


@pytest.mark.parametrize(("name", "count"), [("qwen3.6-35b-a3b-fp8", 64_196), ("qwen3.6-35b-a3b-nvfp4", 124_468)])
def test_tensors_are_as_many_as_those_of_the_release(name: str, count: int) -> None:
    """Counted by others from the headers of the published files; 333 of them are the vision tower's."""
    found = headers(name)
    assert len(found) == count
    assert sum(map(tensors.is_other_input, found)) == 333


def test_box_b_vision_and_mtp_are_the_files_that_its_owner_lists() -> None:
    """recipes.md: 879 MB of vision, 456 MB of MTP, 29 GB in all: as `ls -lh` has them, MiB and GiB, rounded up."""
    found = told("qwen3.6-27b-fp8")
    assert found.mtp is not None
    assert (found.vision_mib, found.mtp.mib) == (879, 455)
    own = {name: its for name, its in headers("qwen3.6-27b-fp8").items() if tensors.is_mtp(name, 64, 0)}
    assert 455 < tensors.total(own.values()) / 2**20 < 456
    assert 28.5 < (found.weights_mib + found.vision_mib + found.mtp.mib) / 1024 < 29


def test_all_of_an_architecture() -> None:
    assert told("qwen3.6-35b-a3b-nvfp4").model_dump(exclude_defaults=True) == QWEN_35B | {
        "quantization": "nvfp4",
        "weights_mib": 19860,
        "mtp": {"mib": 1611, "tensors": 19},
    }
    assert told("gpt-oss-20b").intermediate_size == 4 * 2880 and told("gpt-oss-20b").sliding_window == 128
    assert told("qwen3-0.6b").sliding_window is None


def test_an_lm_head_that_the_embeddings_stand_for_is_not_loaded() -> None:
    assert told("qwen3-0.6b").weights_mib == 1137  # 1434 with it
    loose = config("qwen3-0.6b") | {"tie_word_embeddings": False}
    assert facts(loose, headers("qwen3-0.6b")).architecture.weights_mib == 1434


def test_the_state_is_as_wide_as_the_config_says_or_as_the_model() -> None:
    wide, narrow = told("qwen3.6-27b").linear, told("qwen3-coder-next-nvfp4").linear
    assert wide is not None and narrow is not None
    assert (wide.state_bytes, narrow.state_bytes) == (4, 2)


def test_another_head_takes_the_place_of_its_own() -> None:
    whole = short("ornith-1.5-35b-a3b-awq-int4")
    headers_ = qwen(whole, experts=packed_int4, draft=plain)
    head = {name: its for name, its in qwen(whole, draft=plain, stacked=True).items() if name.startswith("mtp.")}
    own, other = facts(whole, headers_).architecture, facts(whole, headers_, head=head).architecture
    assert own.mtp is not None and other.mtp is not None
    assert (own.mtp.tensors, other.mtp.tensors) == (785, 19)
    assert own.mtp.mib == other.mtp.mib and other.weights_mib == own.weights_mib


def test_a_head_that_is_announced_and_not_there() -> None:
    found = facts(config("qwen3.6-27b"), qwen(config("qwen3.6-27b")))
    assert found.architecture.mtp is None
    assert "announces an MTP head, and no tensor of it is there" in found.notes[0]


def short(name: str) -> dict[str, Any]:
    """The checkpoint with one decoder layer: its MTP head is the same."""
    whole = config(name)
    return whole | {"text_config": whole["text_config"] | {"num_hidden_layers": 1, "layer_types": ["full_attention"]}}


def test_a_config_and_tensors_that_disagree_on_the_head() -> None:
    whole = short("qwen3.6-35b-a3b-gptq-int4")
    own = qwen(whole, experts=gptq, draft=plain)
    assert facts(whole, own).notes == []
    silent = whole | {"quantization_config": {"bits": 4, "group_size": 128, "quant_method": "gptq"}}
    (note,) = facts(silent, own).notes
    assert "by config.json mtp.fc is quantised, its tensor is not (776 modules)" in note
    (note,) = facts(whole, qwen(whole, experts=gptq, draft=gptq)).notes
    assert "is not quantised, its tensor is (775 modules)" in note


def test_quantised_tensors_without_a_word_of_it() -> None:
    silent = {key: value for key, value in config("wizardcoder-python-7b-awq").items() if key != "quantization_config"}
    found = facts(silent, headers("wizardcoder-python-7b-awq"))
    assert found.architecture.quantization == "none" and "an engine has to be told how" in found.notes[0]


def test_layers_after_the_decoders_own_are_the_head() -> None:
    """GLM, DeepSeek and others call the head's layers like the decoder's."""
    whole = config("llama-3-8b-fp8") | {"num_nextn_predict_layers": 1, "num_hidden_layers": 31}
    found = facts(whole, headers("llama-3-8b-fp8")).architecture
    assert found.mtp is not None and found.mtp.tensors == 23 and found.layers.count == 31


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gemma-3-12b-it", "text_config has sliding_window, and neither layer_types nor sliding_window_pattern"),
        ("omnicoder-9b-mlx-5bit", "quantization_config has no quant_method"),
    ],
)
def test_public_checkpoints_that_do_not_say_what_they_are(name: str, said: str) -> None:
    with pytest.raises(UnknownFact, match=said) as raised:
        facts(config(name), {})
    assert "--no-architecture" in raised.value.problems[0]


LLAMA = {key: value for key, value in config("llama-3-8b-fp8").items() if key != "quantization_config"}


@pytest.mark.parametrize("key", ["model_type", "num_hidden_layers", "hidden_size", "num_attention_heads",
                                 "intermediate_size", "vocab_size", "max_position_embeddings"])  # fmt: skip
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(UnknownFact, match=f"config.json has no {key}"):
        facts({name: value for name, value in LLAMA.items() if name != key}, {})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": "4096"}, "hidden_size is '4096', no number"),
        ({"hidden_size": True}, "hidden_size is True, no number"),
        ({"num_attention_heads": 31}, "no head_dim, and hidden_size is no multiple"),
        ({"kv_lora_rank": 512}, "kv_lora_rank: latent attention"),
        ({"global_head_dim": 512}, "global_head_dim: heads of another width"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries, num_hidden_layers is 32"),
        ({"layer_types": ["mamba"] * 32}, "layers of kind mamba are not known"),
        ({"linear_num_value_heads": 4}, "neither layer_types nor full_attention_interval"),
        ({"num_experts": 8}, "no num_experts_per_tok"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quant_method bitsandbytes is none that is known"),
        ({"quantization_config": {"quant_method": "modelopt"}}, "modelopt with quant_algo not given"),
    ],
)
def test_what_has_no_form_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnknownFact, match=said):
        facts(LLAMA | changes, {})


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, (32, 0, 0)),
        ({"sliding_window": None}, (32, 0, 0)),
        ({"sliding_window": 4096, "use_sliding_window": False}, (32, 0, 0)),
        ({"sliding_window": 4096, "sliding_window_pattern": 4}, (8, 24, 0)),
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28}, (28, 4, 0)),
        ({"sliding_window": 4096, "model_type": "mistral"}, (0, 32, 0)),
        ({"sliding_window": 4096, "model_type": "gemma2"}, (16, 16, 0)),
        ({"full_attention_interval": 4, "linear_num_value_heads": 32}, (8, 0, 24)),
    ],
)
def test_kinds_of_layers_without_a_list(changes: dict[str, Any], kinds: tuple[int, int, int]) -> None:
    from gpufleet.checkpoint.config import config as of

    found = layers(of(LLAMA | changes))
    assert (found.full_attention, found.sliding_attention, found.linear_attention) == kinds


@pytest.mark.parametrize(
    ("said", "method"),
    [
        (None, "none"),
        ({"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq"}, "gptq"),
        ({"quant_method": "auto-round", "packing_format": "auto_round:auto_awq"}, "awq"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"type": "int", "num_bits": 4}}}},
         "compressed-tensors"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"type": "float", "num_bits": 4}}}},
         "nvfp4"),
    ],
)  # fmt: skip
def test_methods(said: dict[str, Any] | None, method: str) -> None:
    assert quantization.method(said) == method


def test_modelopts_own_file_counts_where_config_json_is_silent() -> None:
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    assert facts(LLAMA, {}, beside).architecture.quantization == "nvfp4"
    assert facts(LLAMA, {}).architecture.quantization == "none"


@pytest.mark.parametrize(
    ("said", "converted"),
    [
        ({}, True),
        ({"modules_to_not_convert": ["mtp"]}, False),
        ({"modules_to_not_convert": ["visual", "lm_head"]}, True),
        ({"modules_to_not_convert": None}, True),
        ({"ignore": ["re:.*mtp.*"]}, False),
        ({"ignore": ["mtp*"]}, False),
        ({"ignore": ["mtp.layers.1"]}, True),
        ({"exclude_modules": ["mtp.layers.0*"]}, False),
        ({"ignored_layers": ["mtp.layers.0.mlp.up_proj"]}, False),
        ({"dynamic": {"-:.*mtp.*": {}}}, False),
        ({"dynamic": {"+:.*mtp.*": {"bits": 8}}}, True),
        ({"extra_config": {"mtp.layers.0.mlp.up_proj": {"bits": 16}}}, False),
        ({"extra_config": {"mtp.layers.0.mlp.up_proj": {"bits": 8}}}, True),
        ({"block_name_to_quantize": "model.language_model.layers"}, False),
        ({"to_quant_block_names": ["mtp.layers"]}, True),
        ({"quantized_layers": {"lm_head": {}}}, False),
        ({"config_groups": {"group_0": {"targets": ["Linear"]}}}, True),
        ({"config_groups": {"group_0": {"targets": ["re:.*self_attn.*"]}}}, False),
    ],
)
def test_which_modules_a_config_says_are_quantised(said: dict[str, Any], converted: bool) -> None:
    assert quantization.converts(said, "mtp.layers.0.mlp.up_proj") is converted


def test_nothing_is_quantised_without_a_config() -> None:
    assert quantization.converts(None, "mtp.fc") is False


@pytest.mark.parametrize(
    ("name", "whose"),
    [
        ("mtp.fc.weight", "mtp"),
        ("model.mtp.layers.0.mlp.up_proj.weight", "mtp"),
        ("model.mtp_layers.0.eh_proj.weight", "mtp"),
        ("model.visual.blocks.0.attn.qkv.weight", "other"),
        ("vision_tower.vision_model.embeddings.weight", "other"),
        ("multi_modal_projector.mm_input_projection_weight", "other"),
        ("model.audio_tower.layers.0.fc1.weight", "other"),
        ("model.language_model.layers.0.mlp.up_proj.weight", "text"),
        ("lm_head.weight", "text"),
        ("mlp1.0.weight", "other"),
        ("model.layers.0.mlp1.weight", "text"),
    ],
)
def test_whose_a_tensor_is(name: str, whose: str) -> None:
    found = "mtp" if tensors.is_mtp(name, 64, 0) else "other" if tensors.is_other_input(name) else "text"
    assert found == whose


def test_sizes_are_to_the_nearest_mib() -> None:
    one = laid_out(iter([("a", "U8", [1 << 19]), ("b", "U8", [(1 << 19) - 1])]))
    assert tensors.mib(tensors.total(one.values())) == 1 and tensors.mib(tensors.size(one["b"])) == 0
