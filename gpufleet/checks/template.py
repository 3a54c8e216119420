"""Whether a checkpoint's chat template renders what clients send: plain text, lists of parts, tools, thinking."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpufleet.checks.apart import render, variables
from gpufleet.checks.facts import Facts, Problem, Use
from gpufleet.checks.jinja import TemplateError
from gpufleet.instance import template_at
from gpufleet.memory_args import mapping
from gpufleet.models import Model

FILE, CONFIG, PROCESSOR = "chat_template.jinja", "tokenizer_config.json", "chat_template.json"
WORD, NAME, RESULT = "seventeen", "get_weather", "twenty degrees"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "The weather of a city, now.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
USER: list[dict[str, Any]] = [{"role": "user", "content": f"What is {WORD} and one?"}]
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    *USER,
    {"role": "assistant", "content": "18."},
    *USER,
]
PARTS: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": f"What is {WORD} and one?"}]}]
# As vLLM hands it to the template: arguments are a mapping (`_postprocess_messages`, 0.27.1).
CALL = {"id": "1", "type": "function", "function": {"name": NAME, "arguments": {"city": "Paris"}}}
CALLED: list[dict[str, Any]] = [
    *USER,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": RESULT},
]
TAKE = "take the chat template of the model that it was made of"
THINKING = "enable_thinking"


def renders(facts: Facts, uses: Sequence[Use], model: Model | None = None) -> Iterator[Problem]:
    """Every template that a use needs, held against what is asked of it; without a use, what any client may send.

    + model: whose page may have a template in place of the checkpoint's. Raises ConfigError when it cannot be read
    """
    if not facts.config and not facts.texts:
        return
    own = model.template if model else None
    asked = [use for use in uses if use.engine == "vllm" and _is_known(use, own)]
    if uses and not asked:
        return  # the owner's own template lies on the box; or the engine has its own
    file, plain, with_tools = templates(facts)
    if model is not None and own is not None:
        file, plain, with_tools = str(model.chat_template), own, None
    if plain is None:
        remedy = f"{TAKE}: put it beside the page, and name it there: `chat_template: ….jinja`"
        yield Problem("error", FILE, "is missing, and tokenizer_config.json has none: chat requests get 400", remedy)
        return
    for use in asked or [Use("", "vllm", {})]:
        yield from _plain(facts, file, plain, use)
        yield from _parts(facts, file, plain, use)
        yield from _tools(facts, file, with_tools or plain, use, known=bool(asked))
        yield from _thinking(facts, file, plain, use)


def _is_known(use: Use, own: str | None) -> bool:
    given = use.args.get("chat-template")
    return not given or (own is not None and given == template_at(use.name))


def templates(facts: Facts) -> tuple[str, str | None, str | None]:
    """(the file, its template, one for requests with tools if there is another), in the order transformers looks."""
    if FILE in facts.texts:
        return FILE, facts.texts[FILE], facts.texts.get("chat_templates/tool_use.jinja")
    given = facts.tokenizer_config.get("chat_template")
    if isinstance(given, str):
        return CONFIG, given, None
    if isinstance(given, list):
        named = {str(item.get("name")): item.get("template") for item in given if isinstance(item, Mapping)}
        default, tools = named.get("default"), named.get("tool_use")
        return CONFIG, default if isinstance(default, str) else None, tools if isinstance(tools, str) else None
    try:
        processor = json.loads(facts.texts.get(PROCESSOR, "{}")).get("chat_template")
    except (ValueError, AttributeError, RecursionError):
        processor = None
    return PROCESSOR, processor if isinstance(processor, str) else None, None


def _values(facts: Facts, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    tokens = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = facts.tokenizer_config.get(name)
        tokens[name] = token.get("content", "") if isinstance(token, Mapping) else token or ""
    return {"add_generation_prompt": True, "tools": None, "documents": None, **tokens, "messages": messages, **more}


def _rendered(facts: Facts, text: str, use: Use, messages: list[dict[str, Any]], **more: Any) -> str:
    """As vLLM would: as it is told to, or plainly, or in parts where the template takes nothing else. Raises
    TemplateError."""
    form = use.args.get("chat-template-content-format", "auto")
    parted = [
        {**each, "content": [{"type": "text", "text": each["content"]}]} if isinstance(each["content"], str) else each
        for each in messages
    ]
    if form == "openai":
        return render(text, _values(facts, parted, **more))
    try:
        return render(text, _values(facts, messages, **more))
    except TemplateError:
        if form == "string" or "content" not in text:
            raise
        try:
            return render(text, _values(facts, parted, **more))
        except TemplateError:
            pass
        raise


def _plain(facts: Facts, file: str, text: str, use: Use) -> Iterator[Problem]:
    for what, messages in (("a question", USER), ("a talk with a system message", TALK)):
        try:
            found = _rendered(facts, text, use, messages)
        except TemplateError as error:
            yield Problem("error", file, f"does not render {what}: {error}", TAKE)
            return
        if WORD not in found:
            yield Problem("error", file, f"leaves out what the user says in {what}", TAKE)
            return


def _parts(facts: Facts, file: str, text: str, use: Use) -> Iterator[Problem]:
    """vLLM hands parts on when it is told to or finds that the template takes them; else it joins their texts."""
    form = use.args.get("chat-template-content-format", "auto")
    if form == "string":
        return
    try:
        found = render(text, _values(facts, PARTS))
        why = "" if WORD in found and "'type'" not in found else "it leaves out their text, or shows them as they are"
    except TemplateError as error:
        why = str(error)
    if why and form == "openai":
        cause = use.said(f"does not render a message in parts, and chat-template-content-format is openai: {why}")
        yield Problem("error", file, cause, 'set serve_args = {"chat-template-content-format": "string"}')
    elif why and ("content" in text and ".type" in text):
        yield Problem("warning", file, use.said(f"does not render a message in parts: {why}"), TAKE)


def _tools(facts: Facts, file: str, text: str, use: Use, known: bool) -> Iterator[Problem]:
    """+ known: whether it is known how it is served; if not, a template without tools is but a warning"""
    served = use.args.get("enable-auto-tool-choice") is True or bool(use.args.get("tool-call-parser"))
    if known and not served:
        return
    level, parser = ("error", "tool-call-parser") if served else ("warning", "")
    why = ""
    try:
        if NAME not in _rendered(facts, text, use, USER, tools=[TOOL]):
            why = "leaves the tools out: the model cannot know of them"
        elif RESULT not in _rendered(facts, text, use, CALLED, tools=[TOOL]):
            why = "leaves out what a tool answered"
    except TemplateError as error:
        why = f"does not render tools: {error}"
    if why:
        beside = f" ({parser} is set)" if parser else ""
        remedy = TAKE + (
            ', or serve no tools: serve_args = {"tool-call-parser": None, "enable-auto-tool-choice": None}'
            if served
            else ""
        )
        yield Problem("error" if level == "error" else "warning", file, use.said(why + beside), remedy)


def _thinking(facts: Facts, file: str, text: str, use: Use) -> Iterator[Problem]:
    try:
        on, off = (_rendered(facts, text, use, USER, **{THINKING: state}) for state in (True, False))
        taken = variables(text)
    except TemplateError as error:
        yield Problem("error", file, use.said(f"does not render with {THINKING}: {error}"), TAKE)
        return
    if THINKING in taken and on == off:
        yield Problem("warning", file, f"takes {THINKING}, and it changes nothing", TAKE)
    given = mapping(use.args.get("default-chat-template-kwargs"))
    for name in sorted(set(given) - taken):
        cause = use.said(f"does not know {name} of default-chat-template-kwargs: it does nothing")
        yield Problem("warning", file, cause, f"take {name} out, or {TAKE}")
    parser = use.args.get("reasoning-parser")
    if parser and THINKING not in taken and "think" not in text.lower():
        cause = use.said(f"has nothing of thinking, and reasoning-parser is {parser}")
        yield Problem("warning", file, cause, f'{TAKE}, or serve_args = {{"reasoning-parser": None}}')
