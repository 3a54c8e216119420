"""From the words of a command line to flags, by the table of the engine they were written for; and flags compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from gpufleet import yaml_page
from gpufleet.engines import Engine, Flag
from gpufleet.masking import HIDDEN
from gpufleet.spelling import given

# Short names of vLLM's flags (files/engines/vllm-*.txt, last column); those of lmdeploy are its long ones.
SHORT = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "dpl": "data-parallel-size-local",
    "dcp": "decode-context-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "ep": "enable-expert-parallel",
    "asc": "api-server-count",
    "q": "quantization",
    "cc": "compilation-config",
    "ac": "attention-config",
    "sc": "speculative-config",
    "n": "nnodes",
    "r": "node-rank",
}
# Flags that are keys of another one's mapping (vLLM puts them there itself; both at once end its start).
INSIDE = {
    "cudagraph-capture-sizes": ("compilation-config", "cudagraph_capture_sizes"),
    "max-cudagraph-capture-size": ("compilation-config", "max_cudagraph_capture_size"),
    "gdn-prefill-backend": ("additional-config", "gdn_prefill_backend"),
}
# Lengths may be written `100k` (1,000) or `100K` (1,024); with a decimal point only the former (vLLM, arg_utils.py).
LENGTHS = ("max-model-len", "max-num-batched-tokens", "max-num-seqs")
NAMES = (
    "served-model-name",
    "model-name",
    "tokenizer",
    "chat-template",
    "quantization",
)  # texts, whatever they look like
UNITS = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([kmgKMG])")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")


@dataclass
class Written:
    """Flags as they were given. `secrets`: those whose value stays on the box; `unread`: words that mean nothing."""

    model: str | None = None
    args: dict[str, Any] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def read(words: Sequence[str], table: Engine | None, page: str | None = None) -> Written:
    """The flags of a command line, in their long names.

    + words: what follows `vllm serve`, secrets hidden; + table: of the engine's version
    + page: the text of its `--config`; words of the command line are stronger
    """
    found = Written()
    if page is not None:
        _page(found, page, table)
    rest = list(words)
    if rest and not rest[0].startswith("-"):
        found.model = rest.pop(0)
    while rest:
        word = rest.pop(0)
        if not _is_flag(word):
            if found.model is None:
                found.model = word
            else:
                found.unread.append(word)
            continue
        name, equals, value = word.partition("=")
        flag, _, below = name.lstrip("-").partition(".")
        flag = flag.replace("_", "-") if name.startswith("--") else SHORT.get(flag, flag)
        kind = table.kind(flag) if table and table.knows_flag(flag) else None
        values = [value] if equals else _values(rest, kind if not below else "value")
        _put(found, flag, below, values, table)
    if "model" in found.args:
        found.model = found.model or str(found.args["model"])
        del found.args["model"]
    return found


def _is_flag(word: str) -> bool:
    return re.match(r"--?[A-Za-z]", word) is not None


def _values(rest: list[str], kind: str | None) -> list[str]:
    """The words that belong to a flag, taken from the rest; of an unknown one all up to the next flag."""
    most = {"switch": 0, "value": 1, "commas": 1, "json": 1}.get(kind or "", len(rest))
    found: list[str] = []
    while rest and len(found) < most and not _is_flag(rest[0]):
        found.append(rest.pop(0))
    return found


def _put(found: Written, flag: str, below: str, values: list[str], table: Engine | None) -> None:
    known = table.flag(flag) if table and table.knows_flag(flag) else None
    if any(HIDDEN in value for value in values):
        found.secrets.append(flag)
        return
    if below:
        _into(found.args, known.name if known else flag, below.split("."), _typed(" ".join(values)))
        return
    name = known.name if known else flag
    negative = known is not None and _negative(flag, known)
    if not values:
        found.args[name] = not negative
    elif known is not None and known.kind == "switch":
        found.args[name] = (values[0].lower() in ("true", "1", "yes")) != negative
    elif name in NAMES:
        found.args[name] = values[0] if len(values) == 1 else values
    elif len(values) > 1:
        found.args[name] = [_typed(value) for value in values]
    elif known is not None and known.kind == "commas":
        found.args[name] = values[0]
    else:
        found.args[name] = _length(values[0]) if name in LENGTHS else _typed(values[0])
    _fold(found.args, name, known.choices if known else ())


def _negative(flag: str, known: Flag) -> bool:
    """Whether a name of a switch turns it off: `no-x` of `x`, `disable-x` of `enable-x`."""
    if flag == known.name or known.kind != "switch":
        return False
    off = {f"no-{known.name}", f"disable-{known.name.removeprefix('enable-')}"}
    return flag in off


def _fold(args: dict[str, Any], name: str, choices: Iterable[str]) -> None:
    """A flag that stands for a key of another one's mapping, put there; one of its own choices stays."""
    if name in INSIDE and args.get(name) is not None and str(args[name]) not in choices:
        flag, key = INSIDE[name]
        value = args.pop(name)
        listed = key == "cudagraph_capture_sizes" and not isinstance(value, list)
        _into(args, flag, [key], [value] if listed else value)


def _into(args: dict[str, Any], flag: str, keys: Sequence[str], value: Any) -> None:
    branch = args.get(flag)
    args[flag] = branch = dict(branch) if isinstance(branch, dict) else {}
    for key in keys[:-1]:
        branch[key] = dict(branch[key]) if isinstance(branch.get(key), dict) else {}
        branch = branch[key]
    branch[keys[-1]] = value


def _typed(text: str) -> Any:
    """A number, a JSON mapping or list, or the text."""
    if _NUMBER.fullmatch(text):
        return json.loads(text)
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _length(text: str) -> Any:
    match = _LENGTH.fullmatch(text)
    return int(float(match[1]) * UNITS[match[2]]) if match else _typed(text)


def _page(found: Written, text: str, table: Engine | None) -> None:
    """The flags of a YAML file; what cannot be read of it is named."""
    try:
        data = yaml_page.load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        found.unread.append("--config: no mapping can be read from it")
        return
    for key, value in data.items():
        flag = str(key).replace("_", "-")
        known = table.flag(flag) if table and table.knows_flag(flag) else None
        if HIDDEN in json.dumps(value, default=str):
            found.secrets.append(flag)
        elif value is not None and value is not False:  # vLLM's loader drops a false
            name = known.name if known else flag
            if isinstance(value, bool):
                found.args[name] = known is None or not _negative(flag, known)
            elif isinstance(value, str) and name not in NAMES and (known is None or known.kind != "commas"):
                found.args[name] = _length(value) if name in LENGTHS else _typed(value)
            else:
                found.args[name] = value
            _fold(found.args, name, known.choices if known else ())


def same(one: Any, other: Any) -> bool:
    """Whether two values of a flag mean the same: what was taken away does not count, a list of one is its value."""
    return bool(_plain(one) == _plain(other))


def _plain(value: Any) -> Any:
    value = given(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return _plain(value[0]) if len(value) == 1 and not isinstance(value[0], dict | list) else list(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None if value is None else ("bool", value) if isinstance(value, bool) else str(value)
    return str(int(value)) if float(value).is_integer() else str(value)


def change(old: Any, planned: Any) -> Any:
    """What an entry has to give so that `old` comes out where `planned` is: of a mapping the keys that differ."""
    if not isinstance(old, dict) or not isinstance(planned, dict):
        return old
    keys = {key: change(value, planned.get(key)) for key, value in old.items() if not same(value, planned.get(key))}
    return {**keys, **{key: None for key, value in planned.items() if key not in old and value is not None}}


def leaves(args: Mapping[str, Any]) -> dict[str, Any]:
    """Every value by its dotted key, without what was taken away."""
    found: dict[str, Any] = {}
    for key, value in args.items():
        if isinstance(value, dict) and value:
            found |= {f"{key}.{below}": item for below, item in leaves(value).items()}
        elif value is not None:
            found[key] = value
    return found
