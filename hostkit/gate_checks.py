"""The questions an instance is asked: an answer that is right, a long prompt, a tool call, an image."""

from __future__ import annotations

import base64
import json
import random
import re
import struct
import zlib
from typing import Any, Callable, Optional

from hostkit.errors import Failure
from hostkit.gate_http import Client, Reply, quoted

Ask = Callable[..., Reply]  # (what, content, max_tokens, **more); raises Failure

ROOM = 64  # tokens of a context that are left for the chat template and the answer
SMALLEST, CHEAP = 512, 2048  # tokens: below the first there is no long prompt to speak of
FEW = 20  # words
ANSWER = 16
NEAR = 0.8  # of the tokens aimed at
THINKING = 512  # tokens that a model may think before it calls a tool
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city, now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "its name"}},
            "required": ["city"],
        },
    },
}
# How the formats of tool calls look when no parser has taken them out of the text.
UNPARSED = r"<tool_call|<function[=s]|<\|python_tag|\[TOOL_CALLS\]|\"name\"\s*:\s*\"get_weather\"|get_weather\s*\("


def right(ask: Ask, wanted: dict) -> tuple[str, Callable[[], None]]:
    """(the first answer, what is to be checked of it): so that the caller can note when it came."""
    reply = ask("a chat completion", wanted["prompt"], wanted["max_tokens"])
    text, expect = reply.spoken, wanted["expect"]

    def check() -> None:
        _refuse_noise(reply, "the answer")
        if not text.strip():
            raise Failure("a chat completion comes back empty", "check the checkpoint and its chat template")
        if expect.get("deterministic"):
            again = ask("a second chat completion", wanted["prompt"], wanted["max_tokens"]).spoken
            if again != text:
                raise Failure(
                    "two completions at temperature 0 differ: {!r}, then {!r}".format(quoted(text), quoted(again)),
                    "look for a broken kernel or P2P in the unit's journal",
                )
        if "contains" in expect and str(expect["contains"]) not in text:
            is_cut = reply.finish == "length"
            cut = " (cut off after {} tokens)".format(reply.completion_tokens or wanted["max_tokens"]) if is_cut else ""
            raise Failure(
                "the answer to {!r} is {!r}{} and lacks {!r}".format(
                    wanted["prompt"], quoted(text), cut, expect["contains"]
                ),
                ("give it more, as models need that think first (gate.max_tokens in the model's page); else " * is_cut)
                + "check the checkpoint, its quantisation flag and the chat template",
            )

    return text, check


def long_prompt(client: Client, ask: Ask, wanted: dict, model: str) -> tuple[Optional[int], list[str]]:
    """(tokens of the prompt that was answered, warnings). None when there was none to ask.

    + wanted: {"tokens": the longest that is tried}; the engine's own limit counts, too

    Random words, so that no cache knows them. How many tokens a word has depends on the model: two short prompts tell.
    """
    most = client.context(model)
    aim = min(wanted["tokens"], most or wanted["tokens"]) - ROOM
    if aim < SMALLEST:
        return None, []
    one = _count(ask, FEW)
    if not one:
        return None, ["no prompt near the context limit was tried: its answers do not count their tokens (`usage`)"]
    # The second is the longer the better it tells, and takes time where the limit is far.
    share = 0.4 if aim < CHEAP else 0.1
    many = max(2 * FEW, int(FEW * aim * share / one))
    two = _count(ask, many) or one
    each = (two - one) / (many - FEW) if two > one else one / FEW
    words = many + max(0, int((aim * 0.97 - two) / each))
    reply = ask("a prompt of {} words, near {} tokens".format(words, aim), _words(words), ANSWER, ignore_eos=True)
    _refuse_noise(reply, "the answer to a prompt of {} tokens".format(reply.prompt_tokens))
    if (reply.prompt_tokens or 0) < NEAR * aim:
        raise Failure(
            "of a prompt of some {} tokens it read {}: it cuts long prompts".format(aim, reply.prompt_tokens),
            "look at what limits a prompt among the engine's flags",
        )
    if not reply.spoken.strip():
        raise Failure(
            "the answer to a prompt of {} tokens is empty".format(reply.prompt_tokens),
            "lower max-model-len, or look at the unit's journal for what attention does with long prompts",
        )
    return reply.prompt_tokens, []


def _count(ask: Ask, words: int) -> Optional[int]:
    return ask("a prompt of {} words".format(words), _words(words), 1).prompt_tokens


def _words(number: int) -> str:
    draw = random.SystemRandom()
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ("".join(draw.choices(letters, k=5)) for _ in range(number))
    return "Say anything about these words: " + " ".join(words)


def tool_call(ask: Ask, most: int) -> list[str]:
    """Warnings; Failure for a call that stays in the text. A model that does not want to call is no fault of a box."""
    reply = ask(
        "a question with a tool",
        "What is the weather in Paris now? Call the tool get_weather.",
        max(most, THINKING),
        tools=[TOOL],
        tool_choice="auto",
    )
    for name, arguments in reply.calls:
        try:
            given = json.loads(arguments)
        except ValueError:
            given = None
        if name == "get_weather" and isinstance(given, dict):
            return []
        raise Failure(
            "a tool call does not parse: {} with {!r}".format(quoted(name), quoted(arguments)),
            "set tool-call-parser to the one of this model's family",
        )
    if re.search(UNPARSED, reply.text):
        raise Failure(
            "a tool call stays in the text: {!r}".format(quoted(reply.text)),
            "set tool-call-parser to the one of this model's family, and see that the chat template is the model's own",
        )
    return ["asked to call a tool, it answers with words: {!r}".format(quoted(reply.spoken))]


def image(ask: Ask, most: int) -> None:
    """A red square must be called red."""
    url = "data:image/png;base64," + base64.b64encode(png(112, (255, 0, 0))).decode()
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "Which colour is this image? Answer with one word."},
    ]
    reply = ask("a question about an image", content, max(most, THINKING))
    if "red" not in reply.spoken.lower():
        raise Failure(
            "a red image is described as {!r}".format(quoted(reply.spoken)),
            "check the vision part of the checkpoint, its preprocessor files and the chat template; a model that is "
            "served without images has language-model-only",
        )


def png(size: int, colour: tuple[int, int, int]) -> bytes:
    """A square of one colour (https://www.w3.org/TR/png-3/)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + bytes(colour) * size
    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)  # 8 bits, RGB
    pixels = zlib.compress(row * size)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _refuse_noise(reply: Reply, what: str) -> None:
    """One character over and over is what comes out when numbers overflow: `!!!!!!!!` is token 0 of many models. And
    `Ġ` is how byte-level tokenizers write a space: a checkpoint that names another class of tokenizer leaves it."""
    text = reply.spoken.strip()
    if len(text) >= 8 and len(set(text)) == 1:
        raise Failure(
            "{} is {!r}: its numbers overflow".format(what, quoted(text)),
            "check dtype (half on SM70 and SM75), the KV cache's type, and the kernels that the log names",
        )
    if "\u0120" in text or "\u010a" in text:
        raise Failure(
            "{} is {!r}: it is not put back into text".format(what, quoted(text)),
            "check tokenizer_class in the checkpoint's tokenizer_config.json against the one it was made from",
        )


def body(wanted: dict, content: Any, most: int, more: dict[str, Any]) -> dict[str, Any]:
    """A request for a chat completion at temperature 0."""
    return {
        "model": wanted["model"],
        "messages": [{"role": "user", "content": content}],
        "max_tokens": most,
        "temperature": 0,
        "seed": 0,
        **more,
    }
