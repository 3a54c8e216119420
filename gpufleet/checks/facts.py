"""What is known of a model's files, and what a check says of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Problem:
    """Something that is wrong of a model's files; `file` is empty where it is none's."""

    level: Level
    file: str
    cause: str
    remedy: str

    @property
    def line(self) -> str:
        """`error: config.json …. Remedy.`"""
        remedy = f"{self.remedy[:1].upper()}{self.remedy[1:]}"
        return f"{self.level}: {f'{self.file} ' if self.file else ''}{self.cause}. {remedy}."


@dataclass(frozen=True)
class Use:
    """How a model is to be served: an instance of a plan, or its page alone.

    + name: of the instance, empty for the page; + args: the engine's flags
    + archs: architectures of its cards; + provides: of its stack; + names: what it answers to
    """

    name: str
    engine: str
    args: Mapping[str, Any]
    archs: frozenset[str] = frozenset()
    provides: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()

    def said(self, text: str) -> str:
        """The text, with the instance's name in front."""
        return f"{self.name}: {text}" if self.name else text


@dataclass(frozen=True)
class Facts:
    """+ damage: what the look at the files found; + unread: small files that are no JSON
    + config, tokenizer_config: the files of these names; + texts: all small files
    + tensors, tokenizer: as hostkit.model_check has them
    """

    damage: tuple[Problem, ...] = ()
    unread: tuple[Problem, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    tensors: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's part of config.json."""
        found = self.config.get("text_config")
        return found if isinstance(found, Mapping) else self.config

    @property
    def quantization(self) -> Mapping[str, Any]:
        """`quantization_config` of config.json, of its text part where it stands there."""
        for config in (self.config, self.text_config):
            found = config.get("quantization_config")
            if isinstance(found, Mapping):
                return found
        return {}

    @property
    def method(self) -> str:
        """The kind of quantisation in the words of a page; of one that pages have no word for, config.json's own."""
        found = self.quantization
        method = str(found.get("quant_method") or "none").lower()
        algorithm = str(found.get("quant_algo") or "").upper()
        if method.startswith("modelopt"):
            return "nvfp4" if "FP4" in algorithm or "fp4" in method else "fp8"
        if method == "compressed-tensors" and "nvfp4" in str(found.get("format") or ""):
            return "nvfp4"
        return method.replace("_", "-") if method.startswith("compressed") else method


def of_answer(answer: Mapping[str, Any]) -> Facts:
    """The facts of what hostkit.model_check answers; of damaged files the tensors tell nothing."""
    texts = {str(name): str(text) for name, text in (answer.get("texts") or {}).items()}
    damage = tuple(Problem("error", item["file"], item["cause"], item["remedy"]) for item in answer["problems"])
    unread: list[Problem] = []
    return Facts(
        damage=damage,
        config=_json(texts, "config.json", unread),
        tokenizer_config=_json(texts, "tokenizer_config.json", unread),
        unread=tuple(unread),
        texts=texts,
        tensors=(answer.get("tensors") or {}) if not answer.get("damaged") else {},
        tokenizer=answer.get("tokenizer") or {},
    )


def _json(texts: Mapping[str, str], name: str, unread: list[Problem]) -> Mapping[str, Any]:
    if name not in texts:
        return {}
    try:
        found = json.loads(texts[name])
        if not isinstance(found, dict):
            raise ValueError("it is no mapping")
    except (ValueError, RecursionError) as error:
        unread.append(Problem("error", name, f"cannot be read: {error}", "fetch it again"))
        return {}
    return found
