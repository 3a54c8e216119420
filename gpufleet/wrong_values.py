"""What pydantic finds wrong, said as a line that names the file, the key, what must be there and the nearest name.

Imported when something is wrong only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gpufleet import masking
from gpufleet.errors import nearest
from gpufleet.schema import WORDS

LONGEST = 200  # characters of a wrong value that are shown
# What a value must be whose type is wrong, by pydantic's name of the problem.
TYPES = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
# Settings whose place pip's own configuration takes, which may have a login.
OF_PIP = ("mirrors.pypi", "mirrors.torch")
OWNERS = frozenset(["env", "serve_env", "args", "serve_args"])  # of which a value may be a secret by its name
_KEY = "[key]"  # the last part of a place, where the key itself is wrong

Place = tuple[int | str, ...]


def lines(error: ValidationError, kind: type[BaseModel], data: Mapping[str, Any], where: str) -> list[str]:
    """A line for each problem of `data`, beginning with `where`. What looks like a secret in it is not shown."""
    problems = error.errors()
    branches = {each["loc"]: _branches(each, data) for each in problems}
    said = []
    for each in _fitting(problems, branches):
        loc, skipped = each["loc"] or ("",), branches[each["loc"]]
        place = [str(part) for number, part in enumerate(loc) if number not in skipped and part != _KEY]
        said.append(f"{where}: {_line(each, place, kind)}")
    return said


def _line(problem: ErrorDetails, place: list[str], kind: type[BaseModel]) -> str:
    dotted = ".".join(place)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {dotted!r}{nearest(place[-1], _fields_at(kind, place[:-1]))}"
    if problem["type"] == "missing":
        return f"{dotted!r} is missing"
    value = problem["input"]
    if isinstance(value, str) and re.search("://[^/]*@", value) and problem["type"] == "string_pattern_mismatch":
        mend = "it goes into pip's configuration" if dotted in OF_PIP else "let the server give the files without"
        return f"{dotted}: an address with a login is in every log: {mend} (it is {_shown(value, place)})"
    return f"{dotted}: {_must(problem)} (it is {_shown(value, place)})"


def _must(problem: ErrorDetails) -> str:
    """What the value must be."""
    pattern = problem.get("ctx", {}).get("pattern")
    if pattern in WORDS:
        value = problem["input"]
        long = f"; this has {len(value)}" if isinstance(value, str) and len(value) > 100 else ""
        return f"must be {WORDS[pattern]}{long}"
    if problem["type"] in TYPES:
        return f"must be {TYPES[problem['type']]}"
    return problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be")


def _shown(value: Any, place: Sequence[str]) -> str:
    """The value as Python writes it, cut, without what looks like a secret."""
    if OWNERS.intersection(place) and masking.is_secret(place[-1], anywhere=True):
        return masking.HIDDEN
    if isinstance(value, str):  # a password may have a `/` or a quote in it
        value = re.sub("(?s)(?<=://).*@", f"{masking.HIDDEN}@", value)
    text = masking.text(repr(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _branches(problem: ErrorDetails, data: Mapping[str, Any]) -> list[int]:
    """Which parts of a problem's place name a branch of a union, and so mean nothing to a reader."""
    found: list[int] = []
    current: Any = data
    loc = problem["loc"]
    for number, part in enumerate(loc):
        if _is_in(current, part):
            current = current[part]
        elif number == len(loc) - 1 and problem["type"] == "missing":
            break
        elif part != _KEY and _is_branch(str(part)):
            found.append(number)
    return found


def _is_in(value: Any, part: int | str) -> bool:
    if isinstance(value, Mapping):
        return part in value
    return isinstance(value, list | tuple) and isinstance(part, int) and part < len(value)


def _fitting(problems: list[ErrorDetails], branches: Mapping[Place, list[int]]) -> list[ErrorDetails]:
    """The problems without those of branches of a union that are for another type than the given one.

    Where no branch is for it there is one problem, which says all types.
    """
    unions: dict[Place, list[ErrorDetails]] = {}
    for each in problems:
        for number in branches[each["loc"]][:1]:
            unions.setdefault(each["loc"][:number], []).append(each)
    gone: list[int] = []
    for union in unions.values():
        others = [each for each in union if each["type"] in TYPES and _is_whole(each, branches)]
        kept = union[0] if len(others) == len(union) else None
        gone += [id(each) for each in others if each is not kept]
        if kept is not None and len(others) > 1:
            words = list(dict.fromkeys(TYPES[each["type"]] for each in others))
            kept["type"], kept["msg"] = "value_error", f"must be {' or '.join(words)}"
    return [each for each in problems if id(each) not in gone]


def _is_whole(problem: ErrorDetails, branches: Mapping[Place, list[int]]) -> bool:
    """Whether the branch itself is for another type, not something inside it."""
    return branches[problem["loc"]] == [len(problem["loc"]) - 1]


def _is_branch(part: str) -> bool:
    """Whether pydantic put the name of a union's branch here."""
    return (
        part in ("str", "int", "bool", "float", "none")
        or part[:1].isupper()
        or part.startswith(("constrained-", "function-"))
        or "[" in part
    )


def _fields_at(kind: type[BaseModel], place: list[str]) -> list[str]:
    current: type[BaseModel] | None = kind
    for part in place:
        if part.isdigit() or current is None:
            continue
        field = current.model_fields.get(part)
        current = _model_in(field.annotation) if field else None
    return [field.alias or name for name, field in current.model_fields.items()] if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found:
            return found
    return None
