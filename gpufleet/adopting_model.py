"""The page of a model that a box serves already, from where it lies: one of the catalogue, renewed, or a new one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from gpufleet import yaml_page
from gpufleet.architecture import Architecture
from gpufleet.catalogue import Catalogue
from gpufleet.checkpoint import adding, page
from gpufleet.checks.facts import of_answer
from gpufleet.errors import ConfigError
from gpufleet.models import Model, Source
from gpufleet.schema import PATH, read

# What two checkpoints of the same name must have in common to be taken for the same.
SHAPE = ("family", "layers", "hidden_size", "heads", "kv_heads", "head_dim", "vocab_size", "experts", "quantization")
PRIVATE = ("/tmp/", "/var/tmp/")  # noqa: S108 - nothing is written there; the unit's PrivateTmp hides the box's


@dataclass(frozen=True)
class Page:
    """A model as the plan takes it.

    + text: of the page that has to be written; None: the catalogue has it already
    + of: how it was come by
    + notes: what is odd about the checkpoint; + problems: what has to be put right before a deploy; a line each
    """

    model: Model
    text: str | None
    of: str
    notes: tuple[str, ...]
    problems: tuple[str, ...]


def find(
    found: Mapping[str, Any],
    models: Catalogue[Model],
    box: str,
    elsewhere: Collection[str],
    text_of: Callable[[Model], str],
) -> Page:
    """The page of the model that a service has.

    + found: as hostkit.adoptable tells of it; + box: its name, for the name of a page that would collide
    + elsewhere: names of models that other boxes serve, whose pages must go on meaning what they mean
    + text_of: the text of a page of the catalogue
    Raises ConfigError for a model that cannot be had in place.
    """
    path, given = found.get("path"), found.get("given")
    if path is None:
        where = f"{given!r} is no folder of the box, and no cache of its user has it"
        raise ConfigError([f"the model {where}: give it a page by hand (`gpufleet models add`), and a `serve` entry"])
    if not re.fullmatch(PATH, path):
        raise ConfigError([f"no page can have the path {path}: rename the folder, or link it by a plain name"])
    facts = of_answer(found["look"])
    shape = facts.read
    architecture = None if isinstance(shape, str) else shape.architecture
    notes = [f"its architecture is left out: {shape}"] if isinstance(shape, str) else list(shape.notes)
    problems = [item.line for item in facts.damage] + [item.line for item in facts.unread]
    if path.startswith(PRIVATE):
        problems.append(f"error: {path} is in a directory that services have their own of. Move the model.")
    problems += [f"error: {item['file']} {item['cause']}. {item['remedy']}." for item in found.get("closed") or []]

    def made(model: Model, text: str | None, of: str) -> Page:
        return Page(model, text, of, tuple(notes), tuple(problems))

    for model in models.values():
        if model.link == path:
            return made(model, None, f"the page of {model.name}, which names this folder")
    source = read(Source, {"path": path}, "the page")
    revision = found["commit"][:12] if found.get("commit") else "local"
    values = page.values(revision, source, None, architecture)
    if (like := _like(found, path, architecture, models)) is not None:
        model, why = like
        name = model.name if model.name not in elsewhere else f"{model.name}-{box}"
        if name != model.name and name in models:
            raise ConfigError([f"there is a page {name} of another model: rename it"])
        text = page.renew(text_of(model), values)
        if name != model.name:
            text = re.sub(r"(?m)^name:.*$", f"name: {name}", text, count=1)
        return made(_model(text, name), text, f"the recipe of {model.name} ({why}), with this folder")
    wanted = called(found)
    name = wanted if wanted not in models else f"{wanted}-{box}"
    if name in models:
        raise ConfigError([f"there is a page {name} of another model: rename it"])
    title = adding.title(found.get("repository") or PurePosixPath(path).name, architecture)
    text = page.new(name, title, values)
    return made(_model(text, name), text, "a new page, made from its files; the recipe is in the entry")


def called(found: Mapping[str, Any]) -> str:
    """What the model is called: as its repository or folder, in small letters."""
    own = (found.get("repository") or "").partition("/")[2] or PurePosixPath(found["path"]).name
    return re.sub(r"[^a-z0-9._-]+", "-", own.lower()).strip("-._")[:80] or "model"


def _like(
    found: Mapping[str, Any], path: str, architecture: Architecture | None, models: Catalogue[Model]
) -> tuple[Model, str] | None:
    """A page of the catalogue that is of the same files, and how that is known."""
    there = found.get("files") or {}
    for model in models.values():
        pinned = {name: file for name, file in model.source.files.items() if name.endswith(".safetensors")}
        if pinned and not model.mtp_head and not model.chat_template:
            sizes = all(there.get(name, {}).get("size") == file.size for name, file in pinned.items())
            hashes = all(there.get(name, {}).get("sha256", file.sha256) == file.sha256 for name, file in pinned.items())
            if sizes and hashes:
                return model, "its weights have the same names and sizes"
    if architecture is None:
        return None
    names = {called(found), called({"path": path})}
    for model in models.values():
        place = model.source.hub or model.source.path
        if place is None or model.chat_template is not None or model.architecture is None:  # that is a file beside it
            continue
        if called({"path": place}) in names and _shape(model.architecture) == _shape(architecture):
            return model, "it is called so, and is of the same shape"
    return None


def _shape(found: Architecture) -> list[Any]:
    return [getattr(found, key) for key in SHAPE]


def _model(text: str, name: str) -> Model:
    return read(Model, yaml_page.load(text), f"{name}.yaml")
