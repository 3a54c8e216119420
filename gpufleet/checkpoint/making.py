"""The whole page of a checkpoint: a new one, or with the recipe of the page that the model has already."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from gpufleet import schema, yaml_page
from gpufleet.checkpoint import adding, page, places
from gpufleet.checkpoint.adding import Added, Say
from gpufleet.checkpoint.reading import Files
from gpufleet.errors import ConfigError
from gpufleet.models import Model
from gpufleet.schema import NAME


@dataclass(frozen=True)
class Made:
    """+ recipe: the page whose recipe it has; None: it is a new one"""

    name: str
    text: str
    recipe: Path | None
    found: Added


def make(
    place: Files, name: str, folders: Iterable[Path], head: tuple[Files, str] | None, hub: str, shaped: bool, say: Say
) -> Made:
    """Read a checkpoint and make its page. Raises ConfigError for what is wrong with it, FetchError.

    + name: of the model
    + folders: with pages, the strongest first: the first that has one of this name gives the recipe
    + head: the place and the file of an MTP head that takes the place of its own; None: that of the page, if it has one
    + hub: its address; + shaped: whether the page is to say what the model is
    """
    recipe, before = _before(name, folders)
    found = adding.look(place, head or adding.head_of(before, hub), shaped, say)
    if recipe is None:
        text = page.new(name, adding.title(place.title, found.architecture), found.values)
    else:
        text = page.renew(before, found.values)
    _check(text, name)
    return Made(name, text, recipe, found)


def named(place: Files, given: str | None) -> str:
    """The model's name: the given one, or the checkpoint's own in small letters. Raises ConfigError."""
    name = given or re.sub(r"[^a-z0-9._-]+", "-", place.name().lower()).strip("-._")
    if not re.fullmatch(NAME, name):
        raise ConfigError([f"{name!r} is no name of a model: give one with --name"])
    return name


def of_source(source: str, hub: str, folders: Iterable[Path], say: Say) -> Made:
    """The page of the checkpoint that a SOURCE on the command line names. Raises ConfigError, FetchError."""
    place = places.place(source, hub)
    return make(place, named(place, None), folders, None, hub, True, say)


def _before(name: str, folders: Iterable[Path]) -> tuple[Path | None, str]:
    """The model's page, and its text."""
    path = next((path for folder in folders if (path := folder / f"{name}.yaml").is_file()), None)
    if path is None:
        return None, ""
    try:
        return path, path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError([f"{path} is no text in UTF-8; mend that page"]) from None


def _check(text: str, name: str) -> None:
    """Raises ConfigError unless it is a page; an owner's that was wrong before is mended by its owner."""
    try:
        data = yaml_page.load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError([f"{name}.yaml cannot be read: {' '.join(str(error).split())}; mend that page"]) from None
    if not isinstance(data, dict):
        raise ConfigError([f"{name}.yaml is no mapping; mend that page"])
    schema.read(Model, data, f"{name}.yaml")
