"""How flags are written for an engine: the YAML that vLLM reads, the words that lmdeploy takes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from gpufleet.engines import Engine


def config(args: Mapping[str, Any], table: Engine | None = None) -> str:
    """The YAML that `vllm serve --config` reads.

    vLLM drops a `false` silently (seen in 0.24.0 and 0.27.1): a switch that is off is written `no-<flag>: true`, or is
    left out when the engine has no such form. A value of null leaves a flag out, which is how a stronger layer takes
    one away, also inside a mapping. Mappings, in lists too, go in as JSON, as the command line takes them.

    + table: what the engine knows of its flags; without it every switch is taken to have a `no-` form
    """
    return yaml.safe_dump(dict(_lines(args, table)), sort_keys=True, allow_unicode=True, width=10_000)


def words(args: Mapping[str, Any], table: Engine | None = None) -> list[str]:
    """Flags as words of a command line, sorted by name."""
    found: list[str] = []
    for flag, value in _lines(args, table):
        values = value if isinstance(value, list) else [] if value is True else [value]
        found += [f"--{flag}", *(str(item) for item in values)]
    return found


def _lines(args: Mapping[str, Any], table: Engine | None) -> Iterator[tuple[str, Any]]:
    for flag, value in sorted(args.items()):
        known = table.flag(flag) if table and table.knows_flag(flag) else None
        if value is None:
            continue
        if value is False:
            if flag.startswith("no-"):
                yield flag.removeprefix("no-"), True
            elif known is None or known.negatable:
                yield f"no-{flag}", True
        elif isinstance(value, list) and known and known.kind == "json":
            yield flag, json.dumps(value, ensure_ascii=False)
        elif isinstance(value, list) and known and known.kind == "commas":
            yield flag, ",".join(str(item) for item in value)
        elif isinstance(value, list):
            yield flag, [_plain(item) for item in value]
        else:
            yield flag, _plain(value)


def _plain(value: Any) -> Any:
    return json.dumps(given(value), sort_keys=True, ensure_ascii=False) if isinstance(value, dict) else value


def given(value: Any) -> Any:
    """A mapping without what was taken away in it."""
    if not isinstance(value, dict):
        return value
    return {key: given(item) for key, item in value.items() if item is not None}
