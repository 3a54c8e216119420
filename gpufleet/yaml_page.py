"""YAML as pages are read: no key twice in a mapping, and no more values than a page can mean."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import yaml

MOST = 100_000  # values with all aliases written out; the largest page has some hundred


if TYPE_CHECKING:
    from yaml import SafeLoader
else:  # libyaml's, where PyYAML was built with it: a tenth of the time
    SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(SafeLoader):
    """Of a key that is there twice YAML's parser takes the last, and forgets the other without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key, _ in node.value:
            name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None
            if name and name in seen:
                mark = key.start_mark
                raise ValueError(f"{key.value!r} is there twice, again in line {mark.line + 1}; keep one")
            seen.add(name)
        return super().construct_mapping(node, deep)


def load(text: str) -> Any:
    """What a page says. Raises yaml.YAMLError, RecursionError, or ValueError."""
    found = yaml.load(text, _Loader)  # noqa: S506 - a safe one
    if _count(found, {}, set()) > MOST:
        raise ValueError(f"its aliases make more than {MOST} values of it")
    return found


def _count(value: Any, counted: dict[int, int], open_: set[int]) -> int:
    """How many values it is with all aliases written out; each is looked at once, however often it is named."""
    if not isinstance(value, dict | list):
        return 1
    key = id(value)
    if key in open_:
        raise ValueError("a value holds itself by an alias")
    if key not in counted:
        open_.add(key)
        its = value.values() if isinstance(value, dict) else value
        counted[key] = 1 + sum(_count(one, counted, open_) for one in its)
        open_.remove(key)
    return counted[key]
