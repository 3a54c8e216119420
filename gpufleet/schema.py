"""Typed data from files: pydantic's checks, said as a line that names the file, the key and the nearest right name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from gpufleet.errors import ConfigError

# What a value must be, in words, by the regular expression that it is checked with: what an error says of it.
WORDS: dict[str, str] = {}


def worded(pattern: str, words: str, longest: int | None = None) -> StringConstraints:
    """A text of this form. + words: `a name: letters …`, which errors say in place of the pattern"""
    WORDS[pattern] = words
    return StringConstraints(pattern=pattern, max_length=longest)


def address(value: str) -> str:
    """An address that a client can take apart. Raises ValueError for a port or a `[` that is none."""
    urlsplit(value).port  # noqa: B018 - it is looked at when it is asked for
    return value


# A name becomes a directory, a unit and a label; a flag or a variable becomes a line of a file that a shell may read;
# an address is seen in process lists and logs, so it holds no user and no password.
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
Name = Annotated[
    str,
    worded(NAME, "a name: letters, digits, `.`, `_` and `-`, a letter or digit first, 100 characters at most"),
]
Sha256 = Annotated[str, worded(r"^[0-9a-f]{64}$", "a sha256: 64 digits of 0-9 and a-f")]
ADDRESS = r"^https?://[A-Za-z0-9.\[\]:{}_-]+(/[!#%&()*+,./:;=?A-Za-z0-9\[\]{}|~_-]*)?$"
Url = Annotated[
    str,
    worded(ADDRESS, "an address such as http://192.168.1.5/simple/; other characters are written as %20"),
    AfterValidator(address),
]
PATH = r"^/[A-Za-z0-9._/+@=-]+$"
AbsolutePath = Annotated[
    str, worded(PATH, "a path from the root, such as /srv/models, of letters, digits and `._+@=-`")
]
Package = Annotated[str, worded(r"^[a-z0-9][a-z0-9.+-]+$", "the name of a Debian package, such as libgomp1")]
Variable = Annotated[
    str, worded(r"^[A-Za-z_][A-Za-z0-9_]*$", "the name of a variable: letters, digits and `_`, no digit first")
]

MOST_COUNT = 1 << 40  # of anything that a model has: sums and floats of it stay exact


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
        from gpufleet import wrong_values  # what is right needs none of it

        raise ConfigError(dict.fromkeys(wrong_values.lines(error, kind, data, where))) from None
