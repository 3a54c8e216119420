"""From a place with files to the page of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from gpufleet import yaml_page
from gpufleet.architecture import Architecture
from gpufleet.checkpoint import facts as told
from gpufleet.checkpoint import page, places, reading, tensors
from gpufleet.checkpoint.reading import Files
from gpufleet.errors import ConfigError
from gpufleet.models import MtpHead
from gpufleet.schema import read
from gpufleet.wheelhouse.progress import size
from hostkit.safetensors import brief

Say = Callable[[str], None]


@dataclass(frozen=True)
class Added:
    """What goes into the page, and what is said of it."""

    values: dict[str, Any]
    architecture: Architecture | None
    notes: list[str]


def look(place: Files, head: tuple[Files, str] | None, shaped: bool, say: Say) -> Added:
    """Read a checkpoint. Raises ConfigError for what is wrong with it, FetchError for what cannot be had.

    + head: the place and the file of an MTP head that takes the place of its own
    + shaped: whether the page is to have an architecture
    """
    say(f"{place.where}: reading config.json and the headers of its safetensors files")
    found = reading.read(place)
    other = _head(*head) if head else None
    facts = told.facts(found.config, found.headers, found.beside, other) if shaped else None
    files = place.hashed(found.choice.files, say)
    values = page.values(
        place.revision(files),
        place.source(files),
        _head_of_page(*head, say) if head else None,
        facts.architecture if facts else None,
    )
    if facts is None:
        del values["architecture"]
    notes = [*found.notes, *(facts.notes if facts else [])]
    return Added(values, facts.architecture if facts else None, notes)


def head_of(text: str, hub: str) -> tuple[Files, str] | None:
    """The place and the file of the MTP head that a page has already. Raises ConfigError."""
    try:
        page_ = yaml_page.load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None  # what is wrong with it is said when the page is checked
    if not isinstance(page_, dict) or not page_.get("mtp_head"):
        return None
    if not isinstance(page_["mtp_head"], dict):
        raise ConfigError(["the page: mtp_head is no mapping; mend that page"])
    found = read(MtpHead, page_["mtp_head"], "the page: mtp_head")
    source = found.source
    where = f"hf:{source.hub}@{source.commit}" if source.hub else source.http or source.path or ""
    return places.place(where, hub, None, (found.file,)), found.file


def _head(place: Files, file: str) -> dict[str, Any]:
    """The headers of another MTP head. Raises ConfigError for a file that is none."""
    sizes = place.sizes()
    if file not in sizes:
        there = ", ".join(name for name in sizes if name.endswith(".safetensors")) or "no safetensors files"
        raise ConfigError([f"{place.where} has no {file}: name the file, --mtp-head SOURCE:FILE; there are {there}"])
    found = reading.header(place, file, sizes[file])
    strange = sorted(name for name in found if not tensors.MTP.match(name))
    if strange or not found:
        what = f"tensor {brief(strange[0])} is in it" if strange else "it has no tensors"
        raise ConfigError([f"{place.where}: {file} is no MTP head: {what}; all of a head's are called mtp.…"])
    return found


def _head_of_page(place: Files, file: str, say: Say) -> MtpHead:
    source = place.source(place.hashed([file], say))
    return read(MtpHead, {"source": source.model_dump(), "file": file}, "the page")


def in_words(found: Architecture) -> str:
    """`qwen3_5: dense, 64 layers (16 full_attention, 48 linear_attention), awq, weights 17.9 GiB, …`."""
    kinds = {kind: count for kind, count in found.layers.model_dump().items() if count}
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    parts = [
        f"{found.family}: "
        + (f"{found.experts} experts, {found.experts_per_token} at a time" if found.experts else "dense"),
        f"{found.layers.count} layers ({listed})",
        "not quantised" if found.quantization == "none" else found.quantization,
        f"weights {size(found.weights_mib << 20)}",
    ]
    if found.vision_mib:
        parts.append(f"vision {size(found.vision_mib << 20)}")
    if found.mtp:
        kind = "quantised" if found.mtp.quantised else "not quantised"
        parts.append(f"MTP head of {found.mtp.tensors} tensors, {size(found.mtp.mib << 20)}, {kind}")
    else:
        parts.append("no MTP head")
    return ", ".join(parts)


def title(where: str, found: Architecture | None) -> str:
    """One line for the page."""
    if found is None:
        return where
    kind = {"none": "", "awq": ", AWQ", "gptq": ", GPTQ", "fp8": ", FP8"}.get(
        found.quantization, f", {found.quantization}"
    )
    return f"{where}{kind}{', with MTP' if found.mtp else ''}"
