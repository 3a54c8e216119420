"""Reading a checkpoint: config.json, the index, and the header of each safetensors file, from wherever it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from gpufleet.checkpoint import wanted
from gpufleet.checkpoint.wanted import CONFIG, INDEX, MODELOPT, Choice
from gpufleet.errors import ConfigError
from gpufleet.models import File, Source
from hostkit import safetensors

FIRST = 64 << 10  # bytes of a file that are asked for at first: headers of most are shorter
CONNECTIONS = 4
SHOWN = 3  # names in a message


class Files(Protocol):
    """A place with files: a folder, an address, a repository of the hub.

    + where: how it is called in messages; title: how the model is called there, in full
    """

    where: str

    @property
    def title(self) -> str: ...

    def sizes(self) -> Mapping[str, int]:
        """Bytes of each file that there is, by its path. Raises ConfigError or FetchError."""

    def part(self, name: str, start: int, end: int) -> bytes:
        """Bytes from `start` to before `end`. Raises FetchError."""

    def hashed(self, names: list[str], say: Callable[[str], None]) -> dict[str, File]:
        """Size and sha256 of files: as the place tells them, or by reading, which is said."""

    def source(self, files: dict[str, File]) -> Source:
        """As a page has it."""

    def revision(self, files: dict[str, File]) -> str:
        """A name for this state of the files."""

    def name(self) -> str:
        """How the model is called there."""


@dataclass(frozen=True)
class Checkpoint:
    """What was read. `headers`: of all tensors; `beside`: hf_quant_config.json; `notes`: what is odd, a line each."""

    config: Any
    headers: dict[str, Any]
    beside: Any
    choice: Choice
    notes: list[str]


def read(files: Files) -> Checkpoint:
    """Raises ConfigError where files are missing, damaged or disagree, FetchError where one cannot be had."""
    sizes = files.sizes()
    if CONFIG not in sizes:
        wanted.choose(sizes, None, files.where)
    config = _json(files, CONFIG, sizes[CONFIG])
    index = wanted.weight_map(_text(files, INDEX, sizes[INDEX]), files.where) if INDEX in sizes else None
    choice = wanted.choose(sizes, index, files.where)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        by_shard = dict(
            zip(choice.shards, pool.map(lambda name: header(files, name, sizes[name]), choice.shards), strict=True)
        )
    headers, notes = together(by_shard, index, files.where)
    beside = _json(files, MODELOPT, sizes[MODELOPT]) if MODELOPT in sizes else None
    return Checkpoint(config, headers, beside, choice, [*choice.notes, *notes])


def header(files: Files, name: str, size: int) -> dict[str, Any]:
    """The tensors of one file, by name. Raises ConfigError for a damaged one."""
    try:
        first = files.part(name, 0, min(FIRST, size))
        length = safetensors.header_length(first, size)
        end = safetensors.LENGTH + length
        text = first[safetensors.LENGTH : end]
        if len(text) < length:
            text += files.part(name, len(first), end)
        return safetensors.parse(text, size)
    except ValueError as error:
        raise ConfigError([f"{files.where}: {name} {error}; fetch it again"]) from None


def together(
    by_shard: Mapping[str, Mapping[str, Any]], index: Mapping[str, str] | None, where: str
) -> tuple[dict[str, Any], list[str]]:
    """All tensors by name, and what is odd. Raises ConfigError where the index and the files disagree.

    + by_shard: file → tensor → its header
    + index: tensor → file
    """
    if index is not None:
        lost = [name for name, shard in index.items() if name not in by_shard[shard]]
        if lost:
            some = ", ".join(f"{safetensors.brief(name)} of {index[name]}" for name in lost[:SHOWN])
            more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
            raise ConfigError([f"{where}: {INDEX} names tensors that are not in their files: {some}{more}"])
    found: dict[str, Any] = {}
    notes: list[str] = []
    for shard, tensors in by_shard.items():
        beside = [name for name in tensors if index is not None and index.get(name) != shard]
        if beside:
            one = safetensors.brief(beside[0])
            notes.append(f"{shard} has {len(beside)} tensors that the index does not name there, such as {one}")
        for name, its in tensors.items():
            if name in found and index is None:
                raise ConfigError(
                    [f"{where}: tensor {safetensors.brief(name)} is in more than one file, last in {shard}"]
                )
            if name not in beside:
                found[name] = its
    return found, notes


def _text(files: Files, name: str, size: int) -> bytes:
    return files.part(name, 0, wanted.readable(name, size, files.where))


def _json(files: Files, name: str, size: int) -> Any:
    return wanted.parsed(_text(files, name, size), name, files.where)
