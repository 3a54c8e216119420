"""Typed data from files: pydantic's checks, said as a line that names the file, the key and the nearest right name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from gpufleet.errors import ConfigError, nearest


def address(value: str) -> str:
    """An address that a client can take apart. Raises ValueError for a port or a `[` that is none."""
    urlsplit(value).port  # noqa: B018 - it is looked at when it is asked for
    return value


# A name becomes a directory, a unit and a label; a flag or a variable becomes a line of a file that a shell may read;
# an address is seen in process lists and logs, so it holds no user and no password.
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
ADDRESS = r"^https?://[A-Za-z0-9.\[\]:{}_-]+(/[!#%&()*+,./:;=?A-Za-z0-9\[\]{}|~_-]*)?$"
Url = Annotated[
    str,
    StringConstraints(pattern=ADDRESS),
    AfterValidator(address),
]
PATH = r"^/[A-Za-z0-9._/+@=-]+$"
AbsolutePath = Annotated[str, StringConstraints(pattern=PATH)]
Package = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]+$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

MOST_COUNT = 1 << 40  # of anything that a model has: sums and floats of it stay exact
LONGEST = 200  # characters of a wrong value that are shown


def _plain(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def _flag(name: str) -> str:
    plain = _plain(name)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", plain):
        raise ValueError("is no name of a flag")
    return plain


def _json(value: Any, deep: int = 0) -> Any:
    """What JSON and YAML can hold, with numbers that every parser and every sum can take."""
    if deep > 20:
        raise ValueError("is nested more than 20 deep")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, int | float) and -(2**63) <= value < 2**63:  # which is false of NaN
        return value
    if isinstance(value, list):
        return [_json(item, deep + 1) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {_encodable(key): _json(item, deep + 1) for key, item in value.items()}
    raise ValueError("must be what JSON can hold: a text, a number of 64 bits, true, false, null, a list, a mapping")


def _encodable(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must be text that UTF-8 can hold") from None
    return value


def _one_line(value: str) -> str:
    if any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in value):
        raise ValueError("must be one line without control characters")
    return _encodable(value)


def is_relative_path(value: str) -> bool:
    """Whether it is a path inside a directory, of characters that a shell and an address take as they are."""
    good = re.fullmatch(r"[A-Za-z0-9._+@=-][A-Za-z0-9._/+@=-]*", value)
    return good is not None and not {"", ".", ".."} & set(value.split("/"))


def _relative(value: str) -> str:
    if not is_relative_path(value):
        raise ValueError("is no path inside the directory")
    return value


def _no_twins(value: Any) -> Any:
    """A flag that is spelled in two ways: the one that wins would be a matter of luck."""
    names = [_plain(name) for name in value if isinstance(name, str)] if isinstance(value, dict) else []
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is given twice, spelled in two ways")
    return value


# The engine's own spelling, `max-model-len`; `--max_model_len` is read as the same.
Flag = Annotated[str, AfterValidator(_flag)]
RelativePath = Annotated[str, AfterValidator(_relative)]
OneLine = Annotated[str, AfterValidator(_one_line)]
Json = Annotated[Any, AfterValidator(_json)]
Args = Annotated[dict[Flag, Json], BeforeValidator(_no_twins)]
Env = dict[Variable, OneLine]


class Data(BaseModel):
    """Base of everything read from files: unknown keys are errors, values are not converted behind one's back."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True)


T = TypeVar("T", bound=Data)


def read(kind: type[T], data: Mapping[str, Any], where: str) -> T:
    """`data` as a `kind`; raises ConfigError with a line for each problem, beginning with `where`."""
    try:
        return kind.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(dict.fromkeys(_lines(error, kind, where))) from None


def _lines(error: ValidationError, kind: type[BaseModel], where: str) -> list[str]:
    lines = []
    for problem in error.errors():
        *before, last = problem["loc"] or ("",)
        # What is wrong with a key is said with the key, whatever it is called.
        named = problem["type"] in ("extra_forbidden", "missing") or not _is_branch(str(last))
        place = [str(part) for part in before if not _is_branch(str(part))] + ([str(last)] if named else [])
        dotted = ".".join(place)
        if problem["type"] == "extra_forbidden":
            known = _fields_at(kind, place[:-1])
            lines.append(f"{where}: unknown key {dotted!r}{nearest(place[-1], known)}")
        elif problem["type"] == "missing":
            lines.append(f"{where}: {dotted!r} is missing")
        else:
            said = problem["msg"].removeprefix("Value error, ")
            lines.append(f"{where}: {dotted}: {said} (it is {_brief(repr(problem['input']))})")
    return lines


def _brief(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _is_branch(part: str) -> bool:
    """Whether pydantic put the name of a union's branch here, which means nothing to a reader."""
    return (
        part in ("str", "int", "bool", "float", "none", "[key]")
        or part[:1].isupper()
        or part.startswith("constrained-")
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
