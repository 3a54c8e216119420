"""The page of a model as text: a new one, or an owner's with other files and the recipe as it was."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from gpufleet import yaml_page
from gpufleet.architecture import Architecture
from gpufleet.errors import ConfigError
from gpufleet.models import MtpHead, Source

# What `gpufleet models add` knows better than whoever wrote the page; in the order of a page.
RENEWED = ("revision", "source", "mtp_head", "architecture")
FIRST = ("schema", "name", "title")
KEY = re.compile(r"^([A-Za-z_]+):")
# A model that thinks has to come to its answer.
GATE = {"max_tokens": 2048, "expect": {"contains": "42"}}


def new(name: str, title: str, renewed: Mapping[str, Any]) -> str:
    """A page with a plain gate and no recipe.

    + renewed: values of RENEWED; None: no such key
    """
    parts = {"schema": 1, "name": name, "title": title, **renewed, "served_name": name, "gate": GATE}
    return "".join(block(key, value) for key, value in parts.items() if value is not None)


def renew(text: str, renewed: Mapping[str, Any]) -> str:
    """An existing page with other values of RENEWED: everything else, comments too, stays as it is.

    A key that `renewed` lacks stays, one that is None goes. Raises ConfigError for a page whose keys do not stand each
    on lines of their own.
    """
    blocks = _blocks(text)
    there = _values(text)
    keys = {key for key, _ in blocks}
    if hidden := next((key for key in RENEWED if key in there and key not in keys), None):
        raise ConfigError(
            [f"the page: {hidden} does not begin a line as `{hidden}:`; write it so, or begin a new page"]
        )
    for key in RENEWED:
        if key not in renewed:
            continue
        at = next((at for at, (found, _) in enumerate(blocks) if found == key), None)
        value = renewed[key]
        if at is not None:
            if value is None:
                del blocks[at]
            elif there.get(key) != value:
                blocks[at] = (key, block(key, value))
        elif value is not None:
            known = (*FIRST, *RENEWED[: RENEWED.index(key)])
            last = max((at for at, (found, _) in enumerate(blocks) if found in known), default=-1)
            blocks.insert(last + 1, (key, block(key, value)))
    return "".join(text for _, text in blocks)


def _values(text: str) -> dict[str, Any]:
    """What the page says. Raises ConfigError where it cannot be read."""
    try:
        found = yaml_page.load(text) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError([f"the page that is there cannot be read: {error}; mend it"]) from None
    if not isinstance(found, dict):
        raise ConfigError(["the page that is there is no mapping; mend it"])
    return found


def _blocks(text: str) -> list[tuple[str, str]]:
    """(top-level key, its lines): what stands between two of them, such as a comment, is a block without a key."""
    blocks: list[tuple[str, str]] = []
    for line in text.splitlines(keepends=True):
        if match := KEY.match(line):
            blocks.append((match[1], line))
        elif line[:1] in (" ", "-") and line.strip() and (last := _last(blocks)) is not None:
            key, kept = blocks[last][0], "".join(text for _, text in blocks[last:])
            blocks[last:] = [(key, kept + line)]  # with a comment or an empty line in its midst
        else:
            blocks.append(("", line))
    return blocks


def _last(blocks: list[tuple[str, str]]) -> int | None:
    """The last block that is a key's."""
    return next((at for at in range(len(blocks) - 1, -1, -1) if blocks[at][0]), None)


def values(revision: str, source: Source, head: MtpHead | None, architecture: Architecture | None) -> dict[str, Any]:
    """Values of RENEWED as a page has them, without what is so by default."""
    return {
        "revision": revision,
        "source": source.model_dump(exclude_defaults=True),
        "mtp_head": head.model_dump(exclude_defaults=True) if head else None,
        "architecture": architecture.model_dump(exclude_defaults=True) if architecture else None,
    }


def block(key: str, value: Any) -> str:
    """A key and its value as a page has it: a mapping of plain values on one line, any other one below the other."""
    return "".join(f"{line}\n" for line in _lines(key, value, ""))


def _lines(key: str, value: Any, indent: str) -> list[str]:
    name = _plain(key)
    if not isinstance(value, dict):
        return [f"{indent}{name}: {_plain(value)}"]
    flat = not any(isinstance(item, dict) for item in value.values())
    if flat and indent:
        return [f"{indent}{name}: {{{', '.join(f'{_plain(its)}: {_plain(item)}' for its, item in value.items())}}}"]
    lines = [f"{indent}{name}:"]
    for its, item in value.items():
        lines += _lines(its, item, indent + "  ")
    return lines


def _plain(value: Any) -> str:
    """A plain value, quoted where YAML would read something else, also inside of braces."""
    text = yaml.safe_dump([value], default_flow_style=True, width=10**6, allow_unicode=True).strip()
    return text[1:-1]
