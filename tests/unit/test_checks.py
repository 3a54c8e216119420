"""What the checks of a model say: of its page, its flags, its tokenizer; what is right passes, what is wrong fails."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from gpufleet import checks
from gpufleet.architecture import Architecture
from gpufleet.checkpoint.facts import facts as read
from gpufleet.checks import Facts, Problem, Use
from gpufleet.checks.facts import of_answer
from gpufleet.models import Model
from tests.unit.checkpoints import awq, config, fp8_blocks, gptq, packed_int4, plain, qwen
from tests.unit.fleets import model
from tests.unit.test_checkpoint_facts import headers as public
from tests.unit.tiny_checkpoint import TEMPLATE

CONFIG: dict[str, Any] = config("qwen3.6-27b") | {"quantization_config": {"quant_method": "awq", "bits": 4}}
PLAIN: dict[str, Any] = config("qwen3.6-27b")


@cache
def headers(form: str = "awq", draft: str = "plain") -> dict[str, Any]:
    """Of Qwen3.6-27B, quantised so; `draft` is `none` for one without an MTP head."""
    forms = {"awq": awq, "gptq": gptq, "fp8": fp8_blocks, "compressed-tensors": packed_int4, "none": plain}
    return qwen(CONFIG, forms[form], draft={"plain": plain, "awq": awq}.get(draft))


def facts(whole: dict[str, Any] | None = None, found: dict[str, Any] | None = None, **more: Any) -> Facts:
    given: dict[str, Any] = {
        "config": CONFIG if whole is None else whole,
        "tokenizer_config": {"tokenizer_class": "Qwen2Tokenizer"},
        "texts": {"config.json": "{}", "tokenizer_config.json": "{}", "chat_template.jinja": TEMPLATE},
        "headers": headers() if found is None else found,
        "tokenizer": {"decoder": ["ByteLevel"], "model": "BPE"},
    }
    return Facts(**{**given, **more})


SHAPE: dict[str, Any] = read(CONFIG, headers()).architecture.model_dump()


def page(**changes: Any) -> Model:
    shape = Architecture.model_validate({**SHAPE, **changes}).model_dump()
    return model("tiny", architecture=shape, args={})


def use(engine: str = "vllm", archs: tuple[str, ...] = (), provides: tuple[str, ...] = (), **args: Any) -> Use:
    flags = {name.replace("_", "-"): value for name, value in args.items()}
    return Use("tiny", engine, flags, frozenset(archs), frozenset(provides), ("tiny",))


def said(found: Facts, of: Model | None = None, *uses: Use) -> list[str]:
    return [f"{item.level}: {item.file} {item.cause}" for item in checks.problems(found, of, uses)]


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


# The page.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"family": "qwen3_next"}, "architecture.family is qwen3_next, the checkpoint's is qwen3_5"),
        ({"quantization": "gptq"}, "architecture.quantization is gptq, the checkpoint's is awq"),
        ({"hidden_size": 4096}, "architecture.hidden_size is 4096, the checkpoint's is 5120"),
        ({"heads": 32}, "architecture.heads is 32, the checkpoint's is 24"),
        ({"experts": 8}, "architecture.experts is 8, the checkpoint's is not given"),
        ({"max_positions": 40960}, "architecture.max_positions is 40960"),
        ({"linear": {**SHAPE["linear"], "value_heads": 32}}, "architecture.linear.value_heads is 32"),
        ({"linear": None}, "architecture.linear is not given, the checkpoint's is there"),
        ({"mtp": {"mib": 810, "tensors": 19}}, "architecture.mtp.tensors is 19, there are 15"),
        ({"mtp": {"mib": 810, "tensors": 15, "quantised": True}}, "mtp.quantised is True, the checkpoint's is False"),
    ],
)
def test_a_page_of_another_checkpoint_is_an_error(changes: dict[str, Any], words: str) -> None:
    (line,) = said(facts(), page(**changes))
    assert line.startswith("error: ") and words in line


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights_mib": 20000}, f"weights_mib is 20000, the tensors have {SHAPE['weights_mib']} MiB"),
        ({"vision_mib": 0}, "vision_mib is 0, the tensors have "),
        ({"mtp": {"mib": 455, "tensors": 15}}, "mtp.mib is 455, the tensors have 810 MiB"),
        ({"mtp": None}, "there are 15 mtp.* tensors, and the page's architecture has no mtp"),
    ],
)
def test_sizes_that_are_off_are_a_warning_with_the_right_figure(changes: dict[str, Any], words: str) -> None:
    (line,) = said(facts(), page(**changes))
    assert line.startswith("warning: ") and words in line


def test_sizes_that_are_rounded_are_right() -> None:
    assert said(facts(), page(weights_mib=SHAPE["weights_mib"] + 100)) == []


def test_a_quantised_head_is_told_by_its_tensors() -> None:
    found = said(facts(found=headers("awq", "awq")), page())
    assert any("architecture.mtp.tensors is 15, there are" in line for line in found)


def test_a_head_that_lacks() -> None:
    found = said(facts(found=headers("awq", "none")), page())
    assert "error:  the page's architecture.mtp.tensors is 15, there are 0" in found


def test_a_head_that_is_replaced_later_is_not_held_against_the_page() -> None:
    replaced = page(mtp={"mib": 1611, "tensors": 19})
    assert said(facts(), replaced) != []
    assert checks.problems(facts(), replaced, [], own_head=False) == []


def test_what_cannot_be_told_of_a_checkpoint_is_a_warning() -> None:
    strange = CONFIG | {"text_config": {**CONFIG["text_config"], "kv_lora_rank": 512}}
    (line,) = said(facts(strange), page())
    assert line.startswith("warning: ") and "kv_lora_rank" in line


@pytest.mark.parametrize("name", ["qwen3.6-27b", "qwen3.6-27b-fp8", "qwen3-0.6b"])
def test_public_checkpoints_agree_with_the_page_that_is_made_of_them(name: str) -> None:
    whole, found = config(name), public(name)
    shape = read(whole, found).architecture.model_dump()
    assert said(facts(whole, found), model("tiny", architecture=shape, args={})) == []


@pytest.mark.parametrize("name", ["qwen3.6-35b-a3b-nvfp4", "llama-3-8b-fp8", "gpt-oss-20b"])
def test_configs_of_public_checkpoints_agree_with_their_tensors(name: str) -> None:
    found = facts(config(name), public(name), tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"})
    assert said(found) == []


@pytest.mark.parametrize(
    ("whole", "form", "words"),
    [
        (CONFIG, "compressed-tensors", "says awq, and no tensor is called qweight"),
        (CONFIG, "none", "says awq, and no tensor is called qweight"),
        (PLAIN, "awq", "names no quantisation, and there are tensors called qweight"),
        (PLAIN | {"quantization_config": {"quant_method": "fp8"}}, "awq", "says fp8, and no tensor is called"),
        (PLAIN | {"quantization_config": {"quant_method": "compressed-tensors"}}, "awq", "says compressed-tensors"),
    ],
)
def test_a_config_of_another_quantisation_than_the_tensors(whole: dict[str, Any], form: str, words: str) -> None:
    (line,) = said(facts(whole, headers(form)))
    assert line.startswith("error: config.json ") and words in line


def test_weights_of_float32_are_a_warning() -> None:
    heavy = {name: {**header, "dtype": "F32"} for name, header in headers("none").items()}
    assert said(facts(PLAIN, heavy)) == [
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
    whole = PLAIN if method == "none" else PLAIN | {"quantization_config": {"quant_method": method}}
    (line,) = said(facts(whole, headers(method)), None, use(quantization=flag))
    assert line == f"error:  tiny: quantization is {flag}, the checkpoint is {method} (config.json)"


def test_auto_round_is_served_as_what_it_is_packed_as() -> None:
    whole = PLAIN | {"quantization_config": {"quant_method": "auto-round"}}
    found = facts(whole, headers("gptq"))
    assert said(found, page(quantization="gptq", weights_mib=weights("gptq")), use(quantization="gptq_marlin")) == []
    assert said(found, None, use(quantization="awq")) != []


def weights(form: str) -> int:
    return read(PLAIN, headers(form)).architecture.weights_mib


def test_16_bits_may_be_quantised_by_the_engine_itself() -> None:
    assert said(facts(PLAIN, headers("none")), None, use(quantization="fp8")) == []


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
    found = facts(PLAIN | {"quantization_config": scheme}, headers("fp8"))
    assert bool(said(found, None, use(archs=archs, provides=provides))) is wrong
    assert said(found, None, use(archs=archs, provides=provides, kv_cache_dtype="float16")) == []


def test_speculation_without_a_head() -> None:
    headless = facts(found=headers("awq", "none"))
    for method in ("mtp", "qwen3_5_mtp"):
        config = {"method": method, "num_speculative_tokens": 2}
        (line,) = said(headless, None, use(speculative_config=config))
        assert f"speculates by {method}, and there are no mtp.* tensors" in line
    assert said(headless, None, use(speculative_config={"method": "ngram"})) == []
    patched = use(speculative_config={"method": "mtp"}, provides=("mtp-bf16-draft",))
    assert said(facts(), None, patched) == []


def test_names_that_clients_use_and_nobody_answers_to() -> None:
    named = model("tiny", args={}, aliases=["gpt-4", "qwen"])
    served = Use("tiny", "vllm", {}, names=("tiny", "qwen"))
    assert said(facts(), named, served) == [
        "error:  tiny: it answers to tiny, qwen; clients that ask for gpt-4 get 404"
    ]
    assert said(facts(), named, Use("tiny", "vllm", {}, names=("tiny", "qwen", "gpt-4"))) == []


def test_a_head_that_the_config_calls_quantised_and_is_not() -> None:
    """Patched engines look at the tensors; others build it as config.json says."""
    config = {"method": "mtp", "num_speculative_tokens": 3}
    (line,) = said(facts(), None, use(speculative_config=config))
    assert line.startswith("warning: ") and "by config.json mtp.fc is quantised, its tensor is not" in line
    assert said(facts(), None, use(speculative_config=config, provides=("mtp-bf16-draft",))) == []
    left_out = CONFIG | {"quantization_config": {"quant_method": "awq", "modules_to_not_convert": ["mtp"]}}
    assert said(facts(left_out), None, use(speculative_config=config)) == []


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
    assert said(facts({**CONFIG, "model_type": family}, tokenizer_config=given)) == []


@pytest.mark.parametrize("name", ["LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer", "T5TokenizerFast"])
def test_a_class_that_leaves_marks_in_the_text(name: str) -> None:
    (line,) = said(facts(tokenizer_config={"tokenizer_class": name}))
    assert line.startswith("error: tokenizer_config.json ") and "Ġ and Ċ stay in the text" in line
    assert "Qwen2Tokenizer" in line  # the class that the family has
    (found,) = checks.problems(facts(tokenizer_config={"tokenizer_class": name}), None, [])
    assert '"tokenizer_class": "Qwen2Tokenizer"' in found.remedy


def test_the_same_of_a_family_that_is_not_known_here_by_its_tokenizer_json() -> None:
    whole = {**CONFIG, "model_type": "something_new"}
    (line,) = said(facts(whole, tokenizer_config={"tokenizer_class": "LlamaTokenizer"}))
    assert line.startswith("error: ")
    pieces = {"decoder": ["Replace", "ByteFallback", "Fuse"], "model": "BPE"}
    assert said(facts(whole, tokenizer_config={"tokenizer_class": "LlamaTokenizer"}, tokenizer=pieces)) == []
    (line,) = said(facts(whole, tokenizer_config={"tokenizer_class": "Qwen2Tokenizer"}, tokenizer=pieces))
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
