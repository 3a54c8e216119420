"""What is known of a model's files, and what a check says of them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from gpufleet.checkpoint import facts as reading
from gpufleet.checkpoint import quantization
from gpufleet.checkpoint.config import UnknownFact, config
from gpufleet.checkpoint.tensors import Headers

Level = Literal["error", "warning"]
MODELOPT = "hf_quant_config.json"


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
    + config, tokenizer_config: the files of these names; + beside: hf_quant_config.json; + texts: all small files
    + headers: of all tensors; none where some file is damaged; + tokenizer: as hostkit.model_check has it
    """

    damage: tuple[Problem, ...] = ()
    unread: tuple[Problem, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    headers: Headers = field(default_factory=dict)
    tokenizer: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def read(self) -> reading.Facts | str:
        """What the checkpoint is, as `gpufleet models add` reads it; or why that cannot be told."""
        try:
            return reading.facts(self.config, self.headers, self.beside or None)
        except UnknownFact as error:
            return error.problems[0].split(";")[0]

    @property
    def quantization(self) -> Mapping[str, Any]:
        """What says how it is quantised; nothing when it is not."""
        return quantization.section(config(dict(self.config)), self.beside or None) or {}

    @property
    def method(self) -> str:
        """The kind of quantisation in the words of a page; of one that pages have no word for, config.json's own."""
        try:
            return quantization.method(self.quantization or None)
        except UnknownFact:
            return str(self.quantization.get("quant_method"))


def of_answer(answer: Mapping[str, Any]) -> Facts:
    """The facts of what hostkit.model_check answers; of damaged files the tensors tell nothing."""
    texts = {str(name): str(text) for name, text in (answer.get("texts") or {}).items()}
    damage = tuple(Problem("error", item["file"], item["cause"], item["remedy"]) for item in answer["problems"])
    unread: list[Problem] = []
    packed = answer.get("tensors") if not answer.get("damaged") else None
    return Facts(
        damage=damage,
        config=_json(texts, "config.json", unread),
        tokenizer_config=_json(texts, "tokenizer_config.json", unread),
        beside=_json(texts, MODELOPT, unread),
        unread=tuple(unread),
        texts=texts,
        headers=unpacked(packed) if packed else {},
        tokenizer=answer.get("tokenizer") or {},
    )


def unpacked(text: str) -> dict[str, Any]:
    """Headers as hostkit.model_check packed them; each tensor as if it were the first of its file."""
    found = json.loads(zlib.decompress(base64.b64decode(text)))
    return {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}
        for name, (dtype, shape, size) in found.items()
    }


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
