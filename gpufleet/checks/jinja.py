"""Rendering a chat template as transformers does, from a checkpoint that nobody vouches for.

The same environment (transformers 5.15.1, `utils/chat_template_utils.py`): immutable sandbox, blocks trimmed, loop
controls, `{% generation %}`, `raise_exception`, `strftime_now`, a `tojson` that does not escape. Beside the sandbox,
`range`, powers and products are bounded; what else a template may do without end, gpufleet.checks.apart ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_STEPS = 100_000  # of all `range` together
LONGEST = 1 << 16  # characters or items of a product
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)  # the same template gives the same text


class TemplateError(Exception):
    """A template that does not render; the text says why, on one line."""


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what the model said; it is rendered as it stands."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and not (abs(left) <= LONGEST and abs(right) <= 64):
            raise SecurityError("a power that is too large")
        if operator == "*":
            for text, times in ((left, right), (right, left)):
                if isinstance(text, str | list | tuple) and isinstance(times, int) and len(text) * times > LONGEST:
                    raise SecurityError("a text that is too long")
        return super().call_binop(context, operator, left, right)


def _environment() -> _Environment:
    found = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"])
    found.filters["tojson"] = _tojson
    found.globals["raise_exception"] = _raise
    found.globals["strftime_now"] = lambda form: MOMENT.strftime(form)
    steps = 0

    def bounded(*bounds: int) -> range:
        nonlocal steps
        found = range(*bounds)
        steps += len(found)
        if steps > MOST_STEPS:
            raise SecurityError(f"more than {MOST_STEPS} steps of range")
        return found

    found.globals["range"] = bounded
    return found


def _raise(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(text: str, values: Mapping[str, Any]) -> str:
    """Raises TemplateError."""
    try:
        return _environment().from_string(text).render(**values)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"line {error.lineno}: {_one_line(error.message or str(error))}") from None
    except MemoryError:
        raise TemplateError("takes more memory than it may") from None
    except Exception as error:  # a template can raise anything: a key that is not there, a sum of a text and a number
        raise TemplateError(_one_line(str(error)) or type(error).__name__) from None


def variables(text: str) -> frozenset[str]:
    """The names that a template takes from outside. Raises TemplateError."""
    try:
        return frozenset(meta.find_undeclared_variables(_environment().parse(text)))
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"line {error.lineno}: {_one_line(error.message or str(error))}") from None
    except RecursionError:
        raise TemplateError("it is nested too deep") from None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
