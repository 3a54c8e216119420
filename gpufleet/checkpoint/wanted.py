"""Which files of a repository or folder are the model's: what an engine reads, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from gpufleet.errors import ConfigError
from gpufleet.schema import is_relative_path
from hostkit.safetensors import brief

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
ONE = "model.safetensors"
MODELOPT = "hf_quant_config.json"
# Asked for below an address that tells no list of its files; those that are not there are left out.
USUAL = (
    *(CONFIG, INDEX, MODELOPT, "generation_config.json", "quantize_config.json", "quant_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt"),
    *("special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json"),
    *("preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json"),
)
# Never read by an engine, or another form of the same weights; below any folder.
NEVER = (
    *(".*", "*.md", "readme*", "*.txt.md", "*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg", "*.webp", "*.mp4", "*.pdf"),
    *("*.bin", "*.pth", "*.pt", "*.ckpt", "*.h5", "*.msgpack", "*.ot", "*.onnx", "*.onnx_data", "*.gguf", "*.ggml"),
    *("*.part", "*.lock", "sha256sums", "*.sha256", "*.bin.index.json"),
)
FOLDERS = ("original/", "metal/", "onnx/", "gguf/", "openvino/", "coreml/", ".cache/", ".git/")
LARGEST = 64 << 20  # bytes of a file that is read as a whole; the index of 90,000 tensors has 8 MB
MOST_SHARDS = 2_000  # the largest models have some hundred
SHARD = re.compile(r"^(.*)-(\d{5})-of-(\d{5})\.safetensors$")


@dataclass(frozen=True)
class Choice:
    """`files` are the model's, `shards` those with tensors; `notes`: what was left out that looks like weights."""

    files: list[str]
    shards: list[str]
    notes: list[str] = field(default_factory=list)


def choose(names: Iterable[str], index: Mapping[str, str] | None, where: str) -> Choice:
    """The model's files among all that there are. Raises ConfigError for a checkpoint that is not whole.

    + index: `weight_map` of the index, tensor → file; None without an index
    + where: how the place is called in messages
    """
    there = sorted(names)
    if CONFIG not in there:
        raise ConfigError([f"{where} has no {CONFIG}: give the folder, repository or address that a model is in"])
    tensors = [name for name in there if name.endswith(".safetensors") and not name.startswith(FOLDERS)]
    if index is not None:
        shards = sorted(set(index.values()))
        if lost := [name for name in shards if name not in there]:
            raise ConfigError(
                [f"{where}: {INDEX} names {brief(lost[0])}, which is not there ({len(lost)} of {len(shards)} files)"]
            )
    else:
        shards = [ONE] if ONE in tensors else [name for name in tensors if "/" not in name]
        _all_there(shards, where)
    if not shards:
        raise ConfigError(
            [f"{where} has no safetensors files, which is what gpufleet serves: use a converted checkpoint"]
        )
    notes = [
        f"{name} is left out: {f'{INDEX} does not name it' if index is not None else f'{ONE} is the checkpoint'}"
        for name in tensors
        if name not in shards
    ]
    rest = [name for name in there if name not in tensors and _read(name)]
    sayable([*rest, *shards], where)
    return Choice(sorted([*rest, *shards]), shards, notes)


def _all_there(shards: list[str], where: str) -> None:
    """Names like `model-00002-of-00012.safetensors` tell how many there are."""
    found = [match for name in shards if (match := SHARD.match(name))]
    for match in found:
        numbers = {int(other[2]) for other in found if other[1] == match[1] and other[3] == match[3]}
        lost = sorted(set(range(1, int(match[3]) + 1)) - numbers)
        if lost:
            raise ConfigError([f"{where}: of {match[1]}-…-of-{match[3]}.safetensors number {lost[0]} is missing"])


def _read(name: str) -> bool:
    base = name.rpartition("/")[2].lower()
    return not name.startswith(FOLDERS) and not any(fnmatch(base, pattern) for pattern in NEVER)


def sayable(names: Iterable[str], where: str) -> None:
    """Raises ConfigError for a name that no page can have, and that nobody is to be asked for."""
    if odd := next((name for name in names if not is_relative_path(name)), None):
        raise ConfigError([f"{where}: {brief(repr(odd))} is no name that a page can have: rename it"])


def readable(name: str, size: int, where: str) -> int:
    """The size of a file that is read as a whole. Raises ConfigError for one that would fill the memory."""
    if size > LARGEST:
        raise ConfigError([f"{where}: {name} has {size} bytes, and no such file has so many: look at what it is"])
    return size


def parsed(text: bytes, name: str, where: str) -> Any:
    """What a JSON file holds. Raises ConfigError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{where}: {name} cannot be read: {brief(str(error))}; fetch it again"]) from None


def weight_map(text: bytes, where: str) -> dict[str, str]:
    """Tensor → file, of the index. Raises ConfigError for a damaged one."""
    page = parsed(text, INDEX, where)
    found = page.get("weight_map") if isinstance(page, dict) else None
    if not isinstance(found, dict) or not found or not all(isinstance(file, str) for file in found.values()):
        raise ConfigError(
            [f"{where}: {INDEX} cannot be read: it has no weight_map of tensors to files; fetch it again"]
        )
    shards = sorted(set(found.values()))
    sayable(shards, f"{where}: {INDEX}")
    if len(shards) > MOST_SHARDS:
        raise ConfigError([f"{where}: {INDEX} names {len(shards)} files, more than a model has: fetch it again"])
    return found
