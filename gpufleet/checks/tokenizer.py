"""Whether a checkpoint's tokenizer class is one that is known good for its family.

A class of another kind does not put the pieces back into text: byte-level pieces keep `Ġ` for a space and `Ċ` for a
new line, or lose both. Repacked checkpoints have been seen with such classes (field-problems 45).
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet.checks.facts import Facts, Problem

FILE = "tokenizer_config.json"
# They take everything from tokenizer.json, so they are right for every family. transformers 4 does not know the second
# (gpustack #5096).
GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
QWEN2 = ("Qwen2Tokenizer",)
QWEN3_5 = ("Qwen2Tokenizer", "Qwen3_5Tokenizer")  # as published; as transformers 5 has it
# By `model_type`: what the models' makers publish, and TOKENIZER_MAPPING_NAMES of transformers 5.15.1.
FAMILIES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe", "qwen3_next"), QWEN2),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "mimo"), QWEN2),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"), QWEN3_5),
    "llama": ("LlamaTokenizer",),
    **dict.fromkeys(("gemma2", "gemma3", "gemma3_text"), ("GemmaTokenizer",)),
    **dict.fromkeys(("glm4", "glm4_moe", "gpt_oss"), ()),
}
BYTE_LEVEL = ("Qwen2Tokenizer", "Qwen3_5Tokenizer", "GPT2Tokenizer", "GPTNeoXTokenizer")
# With transformers 5.15.1 a byte-level tokenizer.json under the first two gives `helloworld` for `hello world`.
PIECES = ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "T5Tokenizer", "XGLMTokenizer")


def known_good(facts: Facts) -> Iterator[Problem]:
    """The class of tokenizer_config.json, held against the family's and against tokenizer.json itself."""
    if error := facts.tokenizer.get("error"):
        yield Problem("error", "tokenizer.json", str(error), "fetch it again")
    if not facts.config:
        return
    family = str(facts.config.get("model_type") or "")
    given = facts.tokenizer_config.get("tokenizer_class")
    good = FAMILIES.get(family)
    shown = " or ".join(good or GENERIC[:1])
    if not facts.tokenizer_config:
        if FILE not in facts.texts:
            yield Problem("error", FILE, "is missing", "take it from the model that this one was made of")
        return
    if given is None:
        if good is None:
            cause = f"names no tokenizer_class, and none is known here for {family or 'its family'}"
            yield Problem("warning", FILE, cause, "compare it with that of the model it was made of")
        return
    name = str(given).removesuffix("Fast") if given not in GENERIC else str(given)
    if name in GENERIC or (good is not None and name in good):
        if name in GENERIC and not facts.tokenizer:
            cause = f"names {given}, which reads tokenizer.json, and that is missing"
            yield Problem("error", FILE, cause, "take it from the model that this one was made of")
        return
    byte_level = "ByteLevel" in (facts.tokenizer.get("decoder") or ())
    remedy = (
        f'write "tokenizer_class": "{(good or GENERIC)[0]}" there; or give `tokenizer`, a folder with that of the base'
    )
    if (byte_level and name in PIECES) or (good and good[0] in BYTE_LEVEL and name in PIECES):
        cause = f"names {given}, and {family or 'this'} has byte-level pieces ({shown}): Ġ and Ċ stay in the text"
        yield Problem("error", FILE, cause, remedy)
    elif facts.tokenizer.get("decoder") and not byte_level and name in BYTE_LEVEL:
        cause = f"names {given}, and tokenizer.json has no byte-level pieces: text comes out garbled"
        yield Problem("error", FILE, cause, remedy)
    elif good:
        cause = f"names {given}; known good for {family} is {shown}"
        yield Problem("warning", FILE, cause, remedy)
