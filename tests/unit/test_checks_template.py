"""Chat templates: rendered as transformers renders them, and each thing that clients need and one of them lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpufleet.checks import Facts, Use, template
from gpufleet.checks.jinja import TemplateError, render, variables
from tests.unit.fleets import model
from tests.unit.tiny_checkpoint import TEMPLATE

# What Qwen's templates use of Jinja: a macro, namespaces, previtem, items, raise_exception, tests of a type.
RICH = """
{%- set images = namespace(value=0) %}
{%- macro shown(content) %}
    {%- if content is string %}{{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for part in content %}
            {%- if part.type == 'image' %}{%- set images.value = images.value + 1 %}{{- '<image>' }}
            {%- elif 'text' in part %}{{- part.text }}
            {%- else %}{{- raise_exception('an unexpected part') }}{%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- if tools is iterable and tools is not mapping %}
    {{- "<tools>" }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}{{- "</tools>" }}
{%- endif %}
{%- for message in messages %}
    {%- set text = shown(message.content)|trim %}
    {%- if message.role == 'system' and not loop.first %}{{- raise_exception('system comes first') }}{%- endif %}
    {%- if message.role == 'tool' %}
        {%- if loop.previtem and loop.previtem.role != 'tool' %}{{- '<results>' }}{%- endif %}{{- text }}
    {%- else %}
        {%- generation %}{{- '<' + message.role + '>' + text }}{%- endgeneration %}
        {%- for call in message.tool_calls or [] %}
            {%- if call.function is defined %}{%- set call = call.function %}{%- endif %}
            {{- '<function=' + call.name + '>' }}
            {%- for name, value in call.arguments|items %}{{- name ~ '=' ~ (value | string) }}{%- endfor %}
        {%- endfor %}
    {%- endif %}
    {%- if message.role == 'never' %}{%- break %}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<assistant>' + ('<think></think>' if enable_thinking is defined and enable_thinking is false else '<think>') }}
{%- endif %}
"""
SERVED = {"enable-auto-tool-choice": True, "tool-call-parser": "qwen3_coder", "reasoning-parser": "qwen3"}


def said(text: str | None, args: dict[str, Any] | None = None, **more: Any) -> list[str]:
    """Problems of a template in its own file; `args` None: it is not known how it is served."""
    texts = {"config.json": "{}"} | ({"chat_template.jinja": text} if text is not None else {})
    facts = Facts(config={"model_type": "qwen3_5"}, texts=texts, **more)
    uses = [] if args is None else [Use("m", "vllm", args)]
    return [f"{item.level}: {item.cause}" for item in template.renders(facts, uses)]


@pytest.mark.parametrize("text", [RICH, TEMPLATE])
@pytest.mark.parametrize(
    "args",
    [
        None,
        {},
        SERVED,
        {**SERVED, "default-chat-template-kwargs": {"enable_thinking": True}},
        {"chat-template-content-format": "openai"},
        {"chat-template-content-format": "string"},
    ],
)
def test_a_right_template_passes(text: str, args: dict[str, Any] | None) -> None:
    assert said(text, args) == []


def test_none_at_all() -> None:
    (line,) = said(None)
    assert line == "error: is missing, and tokenizer_config.json has none: chat requests get 400"
    assert said(None, {"chat-template": "/srv/mine.jinja"}) == []


def test_that_of_the_page_is_looked_at_in_place_of_the_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text("{{ tools }}")
    page = model(chat_template="mine.jinja").model_copy(update={"path": tmp_path / "tiny.yaml"})
    facts = Facts(config={"model_type": "qwen3_5"}, texts={"config.json": "{}", "chat_template.jinja": RICH})
    release = "/opt/gpufleet/instances/m/current/chat_template.jinja"
    for args in ({}, {"chat-template": release}):
        (found,) = template.renders(facts, [Use("m", "vllm", args)], page)
        assert found.line.startswith("error: mine.jinja leaves out what the user says in a question")
    assert list(template.renders(facts, [Use("m", "vllm", {"chat-template": "/srv/other.jinja"})], page)) == []


def test_where_transformers_looks_for_it() -> None:
    assert said(None, SERVED, tokenizer_config={"chat_template": RICH}) == []
    several = [{"name": "default", "template": "{{ messages[-1].content }}"}, {"name": "tool_use", "template": RICH}]
    without_thinking = {name: value for name, value in SERVED.items() if name != "reasoning-parser"}
    assert said(None, without_thinking, tokenizer_config={"chat_template": several}) == []
    (line,) = said(None, without_thinking, tokenizer_config={"chat_template": several[:1]})
    assert "leaves the tools out" in line
    (line,) = said(None, {}, tokenizer_config={"chat_template": [{"name": "other", "template": RICH}]})
    assert line.startswith("error: is missing")
    facts = Facts(config={"a": 1}, texts={"chat_template.json": '{"chat_template": "{{ 1 / 0 }}"}'})
    (problem, *_) = template.renders(facts, [])
    assert problem.file == "chat_template.json" and "division by zero" in problem.cause


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{% for message in messages %}", "does not render a question: line 1"),
        ("{{ messages[7].content.strip() }}", "does not render a question"),
        ("{{ raise_exception('no\nway') }}", "does not render a question: no way"),
        ("{{ messages[-1].role }}", "leaves out what the user says in a question"),
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
            "{{ messages[-1].content }}",
            "does not render a talk with a system message: no system",
        ),
    ],
)
def test_what_does_not_render_is_an_error_and_says_why(text: str, words: str) -> None:
    assert any(line.startswith(f"error: {words}") for line in said(text, {}))


def test_a_template_that_takes_nothing_but_parts_is_right() -> None:
    parts = (
        "{% for message in messages %}{% for part in message.content %}{{ part['text'] + '' }}{% endfor %}{% endfor %}"
    )
    assert said(parts, {}) == []
    assert said(parts, {"chat-template-content-format": "openai"}) == []
    (line, *_) = said(parts, {"chat-template-content-format": "string"})
    assert line.startswith("error: does not render a question")


def test_parts_that_are_asked_for_and_not_rendered() -> None:
    text = "{% for message in messages %}{{ message.role + ': ' + message.content }}{% endfor %}"
    assert said(text, {}) == []  # vLLM joins the parts
    found = said(text, {"chat-template-content-format": "openai"})
    assert any(
        "does not render a message in parts, and chat-template-content-format is openai" in line for line in found
    )
    shown = "{% for message in messages %}{{ message.content }}{% endfor %}"
    found = said(shown, {"chat-template-content-format": "openai"})
    assert any("leaves out their text, or shows them as they are" in line for line in found)


TOOLLESS = RICH.replace("{%- if tools is", "{%- if false and tools is")
ANSWERLESS = RICH.replace("{%- endif %}{{- text }}", "{%- endif %}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TOOLLESS, "leaves the tools out: the model cannot know of them"),
        (ANSWERLESS, "leaves out what a tool answered"),
    ],
)
def test_tools_that_are_served_and_not_shown(text: str, words: str) -> None:
    assert text != RICH
    assert said(text, SERVED) == [f"error: m: {words} (tool-call-parser is set)"]
    assert said(text) == [f"warning: {words}"]
    assert said(text, {}) == []  # no tools are served


def test_arguments_of_a_call_are_a_mapping_as_vllm_hands_them_on() -> None:
    loaded = RICH.replace("call.arguments|items", "(call.arguments + '')|items")
    (line,) = said(loaded, SERVED)
    assert line.startswith("error: m: does not render tools: ")


def test_thinking_that_cannot_be_turned_off() -> None:
    stuck = RICH.replace("'<think></think>' if", "'<think>' if")
    assert said(stuck, {}) == ["warning: takes enable_thinking, and it changes nothing"]
    thoughtless = "{% for message in messages %}{{ message.content }}{% endfor %}{{ tools }}"
    assert "warning: m: has nothing of thinking, and reasoning-parser is qwen3" in said(thoughtless, SERVED)
    fails = RICH.replace("'<think></think>' if", "raise_exception('always on') if")
    assert said(fails, {}) == ["error: m: does not render with enable_thinking: always on"]


def test_words_that_the_template_does_not_know() -> None:
    args = {"default-chat-template-kwargs": {"enable_thinking": True, "preserve_thinking": True}}
    assert said(RICH, args) == [
        "warning: m: does not know preserve_thinking of default-chat-template-kwargs: it does nothing"
    ]


def test_another_engine_has_its_own() -> None:
    facts = Facts(config={"a": 1}, texts={"config.json": "{}"})
    assert list(template.renders(facts, [Use("m", "lmdeploy", {})])) == []


# Rendering.


def test_the_words_that_transformers_offers() -> None:
    assert render("{{ {'a': 'é<'} | tojson }}", {}) == '{"a": "é<"}'
    assert render("{{ {'b': 1, 'a': 2} | tojson(sort_keys=True, separators=(',', ':')) }}", {}) == '{"a":2,"b":1}'
    assert render("{{ strftime_now('%Y') }}", {}) == "2026"
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", {}) == "01"
    assert render("a{% generation %}b{% endgeneration %}c", {}) == "abc"
    assert render("  {% if true %}\nx\n{% endif %}\ny", {}) == "x\ny"  # trim_blocks, lstrip_blocks


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ 'a' * 100000 }}", "a text that is too long"),
        ("{{ [1] * 100000 }}", "a text that is too long"),
        ("{{ 9 ** 999 }}", "a power that is too large"),
        ("{% for i in range(999) %}{% for j in range(999) %}{% endfor %}{% endfor %}", "100000 steps of range"),
        ("{{ missing.attribute }}", "undefined"),
        ("{% include 'x' %}", "no loader"),
    ],
)
def test_what_a_template_must_not_do(text: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        render(text, {"messages": []})


def test_the_names_that_a_template_takes() -> None:
    assert variables("{% set a = b %}{{ a }}{{ messages }}") == {"b", "messages"}
    with pytest.raises(TemplateError, match="line 2"):
        variables("a\n{% if %}")
