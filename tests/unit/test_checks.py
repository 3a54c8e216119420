"""What the checks of a model say: of its page, its flags, its tokenizer; what is right passes, what is wrong fails."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpufleet import checks
from gpufleet.architecture import Architecture
from gpufleet.checks import Facts, Problem, Use
from gpufleet.checks.facts import of_answer
from gpufleet.models import Model
from tests.unit.fleets import model
from tests.unit.tiny_checkpoint import TEMPLATE

MIB = 1 << 20
CONFIG: dict[str, Any] = {
    "model_type": "qwen3_5",
    "text_config": {
        "hidden_size": 5120,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 248320,
        "max_position_embeddings": 262144,
        "num_hidden_layers": 64,
        "torch_dtype": "bfloat16",
    },
    "quantization_config": {"quant_method": "awq", "bits": 4},
}
SHAPE: dict[str, Any] = {
    "family": "qwen3_5",
    "layers": {"full_attention": 16, "linear_attention": 48},
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "heads": 24,
    "kv_heads": 4,
    "head_dim": 256,
    "vocab_size": 248320,
    "max_positions": 262144,
    "quantization": "awq",
    "weights_mib": 18378,
    "vision_mib": 838,
    "mtp": {"mib": 810, "tensors": 15},
}


def part(mib: int, tensors: int, kinds: dict[str, int] | None = None, **dtypes: int) -> dict[str, Any]:
    return {"tensors": tensors, "bytes": mib * MIB, "kinds": kinds or {}, "dtypes": dtypes}


TENSORS: dict[str, Any] = {
    "tensors": 1000,
    "rest": part(18378, 800, {"qweight": 400, "qzeros": 400}, I32=9 << 30, BF16=8 << 30),
    "vision": part(838, 185, BF16=838 * MIB),
    "mtp": part(810, 15, BF16=810 * MIB),
}


def facts(config: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None, **more: Any) -> Facts:
    found: dict[str, Any] = {
        "config": CONFIG if config is None else config,
        "tokenizer_config": {"tokenizer_class": "Qwen2Tokenizer"},
        "texts": {"config.json": "{}", "tokenizer_config.json": "{}", "chat_template.jinja": TEMPLATE},
        "tensors": TENSORS if tensors is None else tensors,
        "tokenizer": {"decoder": ["ByteLevel"], "model": "BPE"},
    }
    return Facts(**{**found, **more})


def page(**changes: Any) -> Model:
    shape = Architecture.model_validate({**SHAPE, **changes}).model_dump()
    return model("tiny", architecture=shape, args={})


def use(engine: str = "vllm", archs: tuple[str, ...] = (), provides: tuple[str, ...] = (), **args: Any) -> Use:
    flags = {name.replace("_", "-"): value for name, value in args.items()}
    return Use("tiny", engine, flags, frozenset(archs), frozenset(provides), ("tiny",))


def said(found: Facts, of: Model | None = None, *uses: Use) -> list[str]:
    return [f"{item.level}: {item.file} {item.cause}" for item in checks.problems(found, of, uses)]


def without(values: dict[str, Any], *path: str) -> dict[str, Any]:
    found = copy.deepcopy(values)
    branch = found
    for key in path[:-1]:
        branch = branch[key]
    del branch[path[-1]]
    return found


def laid(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """With `a__b=1` for what is deeper."""
    found = copy.deepcopy(values)
    for key, value in changes.items():
        *before, last = key.split("__")
        branch = found
        for name in before:
            branch = branch[name]
        branch[last] = value
    return found


def test_a_right_checkpoint_passes_every_check() -> None:
    assert said(facts(), page(), use(quantization="awq_marlin", dtype="half", kv_cache_dtype="fp8_e4m3")) == []
    assert said(facts()) == []


def test_the_line_of_a_problem_says_what_to_do() -> None:
    problem = Problem("error", "config.json", "is missing", "fetch it again")
    assert problem.line == "error: config.json is missing. Fetch it again."
    assert Problem("warning", "", "a", "b").line == "warning: a. B."


def test_damage_is_told_beside_what_the_files_say_and_errors_come_first() -> None:
    answer = {
        "problems": [{"file": "a.safetensors", "cause": "is damaged", "remedy": "deploy this box"}],
        "texts": {"config.json": "{", "tokenizer_config.json": "[]", "chat_template.jinja": TEMPLATE},
    }
    found = said(of_answer(answer))
    assert found[0] == "error: a.safetensors is damaged"
    assert any(line.startswith("error: config.json cannot be read") for line in found)
    assert any(line.startswith("error: tokenizer_config.json cannot be read: it is no mapping") for line in found)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({}, "none"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"text_config": {"quantization_config": {"quant_method": "awq"}}}, "awq"),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized"}},
            "compressed-tensors",
        ),
        ({"quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}}, "nvfp4"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, "fp8"),
        ({"quantization_config": {"quant_method": "auto-round"}}, "auto-round"),
    ],
)
def test_the_kind_of_quantisation_is_read_from_config_json(config: dict[str, Any], kind: str) -> None:
    assert Facts(config=config).method == kind


# The page.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"family": "qwen3_next"}, "architecture.family is qwen3_next, config.json's model_type is qwen3_5"),
        ({"quantization": "gptq"}, "architecture.quantization is gptq, config.json's quant_method is awq"),
        ({"hidden_size": 4096}, "architecture.hidden_size is 4096"),
        ({"heads": 32}, "architecture.heads is 32"),
        ({"kv_heads": 8}, "architecture.kv_heads is 8"),
        ({"head_dim": 128}, "architecture.head_dim is 128"),
        ({"vocab_size": 1000}, "architecture.vocab_size is 1000"),
        ({"max_positions": 40960}, "architecture.max_positions is 40960"),
        ({"layers": {"full_attention": 36}}, "architecture.layers is 36 together"),
        ({"mtp": {"mib": 810, "tensors": 19}}, "architecture.mtp.tensors is 19, there are 15"),
        (
            {"mtp": {"mib": 810, "tensors": 15, "quantised": True}},
            "the MTP head is in 16 bits, the page says quantised",
        ),
    ],
)
def test_a_page_of_another_checkpoint_is_an_error(changes: dict[str, Any], words: str) -> None:
    (line,) = said(facts(), page(**changes))
    assert line.startswith("error: ") and words in line


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights_mib": 18000}, "weights_mib is 18000, the tensors have 18378 MiB"),
        ({"vision_mib": 0}, "vision_mib is 0, the tensors have 838 MiB"),
        ({"mtp": {"mib": 435, "tensors": 15}}, "mtp.mib is 435, the mtp.* tensors have 810 MiB"),
        ({"mtp": None}, "there are 15 mtp.* tensors, and the page's architecture has no mtp"),
    ],
)
def test_sizes_that_are_off_are_a_warning_with_the_right_figure(changes: dict[str, Any], words: str) -> None:
    (line,) = said(facts(), page(**changes))
    assert line.startswith("warning: ") and words in line


def test_sizes_that_are_rounded_are_right() -> None:
    assert said(facts(), page(weights_mib=18300)) == []


def test_a_quantised_head_is_told_by_its_tensors() -> None:
    quantised = laid(TENSORS, mtp=part(810, 15, {"qweight": 7}, I32=5))
    (line,) = said(facts(tensors=quantised), page())
    assert "the MTP head is quantised, the page says in 16 bits" in line


def test_a_head_that_lacks() -> None:
    (line,) = said(facts(tensors=laid(TENSORS, mtp=part(0, 0))), page())
    assert line == "error:  the page's architecture.mtp.tensors is 15, there are 0"


def test_auto_round_is_served_as_what_it_is_packed_as() -> None:
    rounded = laid(CONFIG, quantization_config={"quant_method": "auto-round"})
    assert said(facts(rounded), page(quantization="gptq"), use(quantization="gptq_marlin")) == []
    assert said(facts(rounded), page(quantization="fp8")) != []


@pytest.mark.parametrize(
    ("config", "kinds", "words"),
    [
        (CONFIG, {"weight_packed": 3}, "says awq, and no tensor is called qweight"),
        (CONFIG, {}, "says awq, and no tensor is called qweight"),
        (
            without(CONFIG, "quantization_config"),
            {"qweight": 3},
            "names no quantisation, and there are tensors called qweight",
        ),
        (laid(CONFIG, quantization_config__quant_method="fp8"), {"qweight": 1}, "says fp8, and no tensor is called"),
        (
            laid(CONFIG, quantization_config__quant_method="compressed-tensors"),
            {"qweight": 1},
            "says compressed-tensors",
        ),
    ],
)
def test_a_config_of_another_quantisation_than_the_tensors(
    config: dict[str, Any], kinds: dict[str, int], words: str
) -> None:
    (line,) = said(facts(config, laid(TENSORS, rest=part(18378, 800, kinds, BF16=1))))
    assert line.startswith("error: config.json ") and words in line


def test_weights_of_float32_are_a_warning() -> None:
    plain = without(CONFIG, "quantization_config")
    heavy = laid(TENSORS, rest=part(18378, 800, {}, F32=9, BF16=1))
    assert said(facts(plain, heavy)) == [
        "warning: config.json says bfloat16, and its tensors are of float32: twice as much to load"
    ]


# The flags.


@pytest.mark.parametrize(
    ("method", "flag"),
    [
        ("compressed-tensors", "awq_marlin"),
        ("awq", "fp8"),
        ("awq", "gptq_marlin"),
        ("gptq", "awq_marlin"),
        ("fp8", "compressed-tensors"),
        ("none", "awq"),
    ],
)
def test_a_quantisation_flag_that_is_not_the_checkpoints(method: str, flag: str) -> None:
    brings = {"compressed-tensors": "weight_packed", "fp8": "weight_scale_inv", "none": ""}.get(method, "qweight")
    config = laid(CONFIG, quantization_config={"quant_method": method} if method != "none" else {})
    tensors = laid(TENSORS, rest=part(18378, 800, {brings: 4} if brings else {}, BF16=1))
    (line,) = said(facts(config, tensors), None, use(quantization=flag))
    assert line == f"error:  tiny: quantization is {flag}, the checkpoint is {method} (config.json)"


def test_16_bits_may_be_quantised_by_the_engine_itself() -> None:
    plain = without(CONFIG, "quantization_config")
    tensors = laid(TENSORS, rest=part(18378, 800, {}, BF16=1))
    assert said(facts(plain, tensors), None, use(quantization="fp8")) == []


def test_quantised_weights_are_not_computed_with_in_float32() -> None:
    (line,) = said(facts(), None, use(dtype="float32"))
    assert "dtype is float32" in line


@pytest.mark.parametrize(
    ("archs", "provides", "wrong"),
    [(("sm75",), (), True), (("sm75",), ("fp8-kv-sm75",), False), (("sm86",), (), True), (("sm90",), (), False)],
)
def test_a_checkpoint_that_asks_for_an_fp8_cache(
    archs: tuple[str, ...], provides: tuple[str, ...], wrong: bool
) -> None:
    scheme = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    tensors = laid(TENSORS, rest=part(18378, 800, {"weight_scale": 4}, F8_E4M3=1))
    found = facts(laid(CONFIG, quantization_config=scheme), tensors)
    assert bool(said(found, None, use(archs=archs, provides=provides))) is wrong
    assert said(found, None, use(archs=archs, provides=provides, kv_cache_dtype="float16")) == []


def test_speculation_without_a_head() -> None:
    headless = facts(tensors=laid(TENSORS, mtp=part(0, 0)))
    for method in ("mtp", "qwen3_5_mtp"):
        config = {"method": method, "num_speculative_tokens": 2}
        (line,) = said(headless, None, use(speculative_config=config))
        assert f"speculates by {method}, and there are no mtp.* tensors" in line
    assert said(headless, None, use(speculative_config={"method": "ngram"})) == []
    assert said(facts(), None, use(speculative_config={"method": "mtp"})) == []


def test_names_that_clients_use_and_nobody_answers_to() -> None:
    named = model("tiny", args={}, aliases=["gpt-4", "qwen"])
    served = Use("tiny", "vllm", {}, names=("tiny", "qwen"))
    assert said(facts(), named, served) == [
        "error:  tiny: it answers to tiny, qwen; clients that ask for gpt-4 get 404"
    ]
    assert said(facts(), named, Use("tiny", "vllm", {}, names=("tiny", "qwen", "gpt-4"))) == []


# The tokenizer.


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("qwen3_5", "Qwen2Tokenizer"),
        ("qwen3_5", "Qwen2TokenizerFast"),
        ("qwen3_5_moe", "Qwen3_5Tokenizer"),
        ("qwen3", "PreTrainedTokenizerFast"),
        ("qwen3_next", "TokenizersBackend"),
        ("qwen3_5", None),
        ("something_new", "SomethingTokenizer"),
    ],
)
def test_classes_that_are_known_good(family: str, name: str | None) -> None:
    given = {"tokenizer_class": name} if name else {"model_max_length": 1}
    assert said(facts(laid(CONFIG, model_type=family), tokenizer_config=given)) == []


@pytest.mark.parametrize("name", ["LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer", "T5TokenizerFast"])
def test_a_class_that_leaves_marks_in_the_text(name: str) -> None:
    (line,) = said(facts(tokenizer_config={"tokenizer_class": name}))
    assert line.startswith("error: tokenizer_config.json ") and "Ġ and Ċ stay in the text" in line
    assert "Qwen2Tokenizer" in line  # the class that the family has
    (found,) = checks.problems(facts(tokenizer_config={"tokenizer_class": name}), None, [])
    assert '"tokenizer_class": "Qwen2Tokenizer"' in found.remedy


def test_the_same_of_a_family_that_is_not_known_here_by_its_tokenizer_json() -> None:
    config = laid(CONFIG, model_type="something_new")
    (line,) = said(facts(config, tokenizer_config={"tokenizer_class": "LlamaTokenizer"}))
    assert line.startswith("error: ")
    pieces = {"decoder": ["Replace", "ByteFallback", "Fuse"], "model": "BPE"}
    assert said(facts(config, tokenizer_config={"tokenizer_class": "LlamaTokenizer"}, tokenizer=pieces)) == []
    (line,) = said(facts(config, tokenizer_config={"tokenizer_class": "Qwen2Tokenizer"}, tokenizer=pieces))
    assert "has no byte-level pieces" in line


def test_a_class_that_is_another_and_may_be_right_is_a_warning() -> None:
    (line,) = said(facts(tokenizer_config={"tokenizer_class": "GPT2Tokenizer"}))
    assert line.startswith("warning: ") and "known good for qwen3_5 is Qwen2Tokenizer or Qwen3_5Tokenizer" in line


def test_files_of_a_tokenizer_that_lack() -> None:
    texts = {"config.json": "{}", "chat_template.jinja": TEMPLATE}
    assert said(facts(tokenizer_config={}, texts=texts)) == ["error: tokenizer_config.json is missing"]
    generic = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (line,) = said(facts(tokenizer_config=generic, tokenizer={}))
    assert "reads tokenizer.json, and that is missing" in line
    (line,) = said(facts(tokenizer={"error": "cannot be read (ValueError)"}))
    assert line == "error: tokenizer.json cannot be read (ValueError)"
