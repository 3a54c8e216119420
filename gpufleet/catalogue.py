"""Reading a catalogue: a folder of YAML pages, one entry each, named as its file; later folders win."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeVar

import yaml
from pydantic import Field

from gpufleet import paths, yaml_page
from gpufleet.errors import ConfigError, nearest
from gpufleet.schema import Data, Name, OneLine, read


class Entry(Data):
    """What every entry of a catalogue has."""

    schema_: Literal[1] = Field(alias="schema")
    name: Name
    title: OneLine
    path: Path = Field(default=Path(), exclude=True)


E = TypeVar("E", bound=Entry)


class Catalogue(dict[str, E]):
    """Entries by name."""

    def __init__(self, kind: str, entries: dict[str, E]) -> None:
        super().__init__(entries)
        self.kind = kind

    def find(self, name: str, where: str) -> E:
        """The entry of that name. Raises ConfigError with the nearest right name."""
        if name not in self:
            raise ConfigError([f"{where}: unknown {self.kind} {name!r}{nearest(name, self)}"])
        return self[name]


def pages(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder, without those that editors and file systems hide beside them."""
    return [path for path in sorted(folder.glob(pattern)) if not path.name.startswith(".")]


# What may lie beside pages: what Python and editors leave, and what is written for people.
_LEFT = (".bak", ".old", ".orig", ".rej", ".save", ".swo", ".swp", ".tmp", ".pyc")


def strays(folder: Path, suffix: str) -> list[Path]:
    """The files of a folder that are no pages, because of their suffix, and are not what editors or people leave.

    Raises ConfigError for a folder that is there and cannot be read.
    """
    if not paths.is_folder(folder):
        return []
    return [
        path
        for path in sorted(folder.iterdir())
        if path.suffix != suffix
        and not path.name.startswith((".", "#", "README"))
        and not path.name.endswith(("~", *_LEFT))
        and not path.is_dir()
    ]


def load(kind: type[E], word: str, folders: Iterable[Path]) -> Catalogue[E]:
    """All entries of `folders`. Raises ConfigError naming each page that is wrong."""
    entries: dict[str, E] = {}
    folders = list(folders)
    problems = [
        f"{path.parent.name}/{path.name}: {_stray(path)}" for folder in folders for path in strays(folder, ".yaml")
    ]
    for page in [page for folder in folders for page in pages(folder, "*.yaml")]:
        where = f"{page.parent.name}/{page.name}"
        try:
            data = yaml_page.load(page.read_text(encoding="utf-8"))
        except PermissionError as error:
            problems.append(paths.unreadable(page, error))
            continue
        except (yaml.YAMLError, ValueError, OSError, RecursionError) as error:
            problems.append(f"{where}: cannot be read: {' '.join(str(error).split())}")
            continue
        if not isinstance(data, dict):
            problems.append(f"{where}: must be a mapping")
            continue
        try:
            entry = read(kind, data, where).model_copy(update={"path": page})
        except ConfigError as error:
            problems += error.problems
            continue
        if entry.name != page.stem:
            problems.append(f"{where}: its name is {entry.name!r}, but the file says {page.stem!r}")
        entries[entry.name] = entry
    if problems:
        raise ConfigError(problems)
    return Catalogue(word, entries)


def _stray(path: Path) -> str:
    right = f"{path.stem}.yaml"
    near = (
        f"rename it to {right}"
        if path.suffix.lower() in (".yml", ".yaml")
        else f"a page is called {right}; move it away"
    )
    return f"nobody reads a file of this name: {near}"
