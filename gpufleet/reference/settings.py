"""The tables of settings: what may be written, by type, default and what the remark at each setting says."""

from __future__ import annotations

import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo

from gpufleet import schema, settings
from gpufleet.reference.regions import table
from gpufleet.schema import Data

REMARK = "#:"
HEAD = ("key", "meaning", "value", "default", "example")
# What a type that this project names is called; others say their limits.
WORDS: list[tuple[Any, str]] = [
    (schema.Name, "name"),
    (schema.OneLine, "text"),
    (schema.Url, "address"),
    (schema.AbsolutePath, "path"),
    (schema.Args, "flags"),
    (schema.Env, "variables"),
    (settings.Toolkit, '`"13-0"`, `"12-9"` …, or `"none"`'),
    (settings.Share, 'count, or `"1%"` to `"100%"`'),
    (settings.Fingerprint, "40 hexadecimal digits"),
    (settings.GitMirror, "address with `{path}`"),
    (settings.ModelMirror, "address with `{path}`"),
    (settings.FileMirror, "address with `{filename}`"),
    (settings.Serve, "entry"),
    (str, "text"),
    (bool, "`True` or `False`"),
    (int, "number"),
    (float, "number"),
]
BASES = {int: "number", float: "part", str: "text"}


def parts() -> dict[str, str]:
    """The table of each class of settings: `Settings`, `Serve`, `Host` …"""
    kinds = [settings.Settings, *(kind for kind in vars(settings).values() if _is_part(kind))]
    return {kind.__name__: _table(kind) for kind in kinds}


def _is_part(kind: Any) -> bool:
    own = isinstance(kind, type) and issubclass(kind, Data) and kind.__module__ == settings.__name__
    return own and kind is not settings.Settings


def _table(kind: type[Data]) -> str:
    prefix = "" if kind in (settings.Settings, settings.Serve) else f"{kind.__name__.lower()}."
    said, hints = remarks(kind), get_type_hints(kind, include_extras=True)
    rows = []
    for name, field in kind.model_fields.items():
        meaning, default, example = _parted(said.get(name, ""))
        if not meaning:
            raise ValueError(f"{kind.__name__}.{name} has no remark: say behind {REMARK} what it means")
        rows.append((f"`{prefix}{name}`", meaning, word(hints[name]), default or _default(field), example))
    return table(HEAD, rows)


def remarks(kind: type[Data]) -> dict[str, str]:
    """What the source says of each key: remarks right above it, and the one behind it (also a plain one)."""
    text = inspect.getsource(kind)
    lines = text.splitlines()
    behind = {
        token.start[0]: token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and lines[token.start[0] - 1][: token.start[1]].strip()
    }
    found: dict[str, str] = {}
    above: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.strip().startswith(REMARK):
            above.append(line)
            continue
        if key := re.match(r"    (\w+): ", line):
            parts = [*above, *([behind[number]] if number in behind else [])]
            found[key[1]] = " ".join(part.strip().removeprefix(REMARK).lstrip("#").strip() for part in parts)
        above = []
    return found


def _parted(remark: str) -> tuple[str, str, str]:
    """Meaning, default and example of a remark; the last two may be empty."""
    rest, _, example = remark.partition("Example:")
    meaning, _, default = rest.partition("Default:")
    tidy = [part.strip().removesuffix(".") for part in (meaning, default, example)]
    return tidy[0].removesuffix(";"), tidy[1], f"`{tidy[2]}`" if tidy[2] else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Data):
        return "`{}`"
    if value is None:
        return "none"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value!r}`"


def word(hint: Any) -> str:
    """What may be written, in words: a type of this project by its name, numbers with their limits."""
    for known, said in WORDS:
        if hint is known or (hint == known and not isinstance(known, type)):
            return said
    if isinstance(hint, type) and issubclass(hint, Data):
        return "mapping"
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(word(part) for part in arguments if part is not type(None)))
    if origin is Literal:
        return ", ".join(f'`"{value}"`' if isinstance(value, str) else f"`{value}`" for value in arguments)
    if origin is list:
        return f"list: {word(arguments[0])}"
    if origin is dict:
        return f"mapping of {word(arguments[0])} to {word(arguments[1])}"
    if origin is Annotated:
        return _limited(arguments[0], list(_limits(arguments[1:])))
    raise ValueError(f"{hint!r} has no word: add it to WORDS of {__name__}")


def _limits(extras: tuple[Any, ...]) -> Iterator[Any]:
    for extra in extras:
        yield from extra.metadata if isinstance(extra, FieldInfo) else [extra]


def _limited(base: Any, limits: list[Any]) -> str:
    low = next((limit.ge for limit in limits if getattr(limit, "ge", None) is not None), None)
    high = next((limit.le for limit in limits if getattr(limit, "le", None) is not None), None)
    if low is not None and high is not None:
        return f"{low} to {high}"
    if low is not None:
        return f"{low} or more"
    return BASES.get(base) or word(base)
