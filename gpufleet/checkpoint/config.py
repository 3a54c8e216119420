"""config.json of a checkpoint: the language model's part of it, and keys that are looked for, never guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet.errors import ConfigError
from gpufleet.schema import MOST_COUNT, NAME
from hostkit.safetensors import quoted

# Where a model of several kinds of input keeps the language model's part.
NESTED = ("text_config", "language_config", "llm_config")
ANYWAY = "or write the page without its architecture: --no-architecture"


class UnknownFact(ConfigError):
    """config.json does not say what is needed, or says it in a form that is not known; one line that names the key."""

    def __init__(self, problem: str) -> None:
        super().__init__([f"{problem}; {ANYWAY}"])


@dataclass(frozen=True)
class Config:
    """The language model's keys; `whole` is the file."""

    whole: Mapping[str, Any]
    text: Mapping[str, Any]
    place: str  # `config.json` or `config.json: text_config`

    def any(self, *names: str) -> Any:
        """The value of the first of these keys that is there and not null; None when there is none."""
        return next((self.text[name] for name in names if self.text.get(name) is not None), None)

    def optional(self, *names: str) -> int | None:
        """A number of at least 1, or None when the file has no such key, null, or 0."""
        found = self.any(*names)
        if found is None or found == 0:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= MOST_COUNT:
            raise UnknownFact(
                f"{self.place}: {names[0]} is {quoted(found)}, no number of at least 1 that a model can have"
            )
        return found

    def number(self, *names: str) -> int:
        """A number of at least 1. Raises UnknownFact naming the key that is missing."""
        found = self.optional(*names)
        if found is None:
            raise UnknownFact(f"{self.place} has no {' or '.join(names)}")
        return found

    @property
    def family(self) -> str:
        """`model_type` of the file itself."""
        found = self.whole.get("model_type")
        if not isinstance(found, str) or not found:
            raise UnknownFact("config.json has no model_type")
        if not re.fullmatch(NAME, found):
            raise UnknownFact(f"config.json: model_type is {quoted(found)}, no name of a family")
        return found


def config(whole: Any) -> Config:
    """The language model's part of a config.json. Raises UnknownFact for what is none."""
    if not isinstance(whole, dict):
        raise UnknownFact("config.json is no mapping")
    for name in NESTED:
        if isinstance(whole.get(name), dict):
            return Config(whole, whole[name], f"config.json: {name}")
    return Config(whole, whole, "config.json")
