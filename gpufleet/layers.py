"""Layers of settings with provenance: mappings merge key by key, the rest replaces, each value keeps its source."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from gpufleet import paths
from gpufleet.catalogue import pages, strays
from gpufleet.errors import ConfigError, nearest
from gpufleet.provenance import Values
from gpufleet.schema import read
from gpufleet.settings import Settings
from gpufleet.traits import is_trait

EXAMPLES = ("all", "cpu", "sm70", "sm75", "sm86", "nvlink", "pcie", "sm75_nvlink", "sm75_pcie")


@dataclass(frozen=True)
class Layer:
    """Some settings, and the file (or other place) they come from."""

    source: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Merged:
    """Resolved settings, the layers they were made of (weakest first), and what each gave."""

    settings: Settings
    layers: tuple[Layer, ...]
    given: Values

    @property
    def because(self) -> dict[str, str]:
        """The source of each value by its dotted key."""
        return self.given.reasons()


def load_group_data(
    folders: Sequence[Path], groups: Iterable[str], root: Path, boxes: Collection[str] = ()
) -> dict[str, list[Layer]]:
    """The layers of group_data by name, from `folders` (the same name in a later folder is stronger).

    + groups: names of the inventory's groups; a file must be named after one of them, or after a trait
    + boxes: names of its boxes, after which none can be named
    Raises ConfigError for a file that names neither, that does not run, or that has unknown keys.
    """
    layers: dict[str, list[Layer]] = {}
    problems: list[str] = []
    known = set(groups) | {"all"}
    folders = [folder for folder in folders if paths.is_folder(folder)]
    for path in [path for folder in folders for path in strays(folder, ".py")]:
        problems.append(f"{_shown(path, root)}: {_stray(path.stem, known)}")
    for path in [path for folder in folders for path in pages(folder, "*.py")]:
        name, shown = path.stem, _shown(path, root)
        if name not in known and not is_trait(name):
            problems.append(f"{shown}: {_no_group(name, known, boxes)}")
            continue
        try:
            layers.setdefault(name, []).append(_layer(path, shown))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return layers


def of_all(root: Path) -> list[Layer]:
    """The layer of all boxes alone, of a fleet's folder: for commands that are told of no inventory. Empty where there
    is none. Raises ConfigError."""
    path = root / "group_data" / "all.py"
    if not paths.is_folder(path.parent):
        return []
    return [_layer(path, _shown(path, root))] if path.is_file() else []


def _layer(path: Path, shown: str) -> Layer:
    try:
        return Layer(shown, checked(_run(path), shown))
    except ConfigError:
        raise
    except PermissionError as error:
        raise ConfigError([paths.unreadable(error.filename or shown, error)]) from error
    except (Exception, SystemExit) as error:  # an owner's file can raise anything
        raise ConfigError([f"{shown}: {type(error).__name__}: {error}"]) from error


def _stray(stem: str, groups: set[str]) -> str:
    """What to do with a file of group_data that is not read, because it is no Python."""
    if stem in groups or is_trait(stem):
        return f"nobody reads a file of this name: settings of {stem} are Python, in {stem}.py; write them there"
    found = nearest(stem, groups | set(EXAMPLES))
    near = found.replace("'?", ".py'?") if "did you mean" in found else "; move it away"
    return f"nobody reads a file of this name: settings go into NAME.py, after a trait or a group{near}"


def _no_group(name: str, groups: set[str], boxes: Collection[str]) -> str:
    """Why a file of group_data cannot have this name, and which is near."""
    if name in boxes:
        return f"{name!r} is a box, not a group: a box's settings go into its data in the inventory"
    as_trait = name.lower().replace("-", "_")
    near = f"; did you mean {as_trait!r}?" if is_trait(as_trait) else nearest(name, groups | set(EXAMPLES))
    return f"{name!r} is neither a trait nor a group{near}"


def checked(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings of one layer, with names normalised. Raises ConfigError."""
    return read(Settings, values, where).model_dump(exclude_unset=True)


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _run(path: Path) -> dict[str, Any]:
    """The settings a group_data file assigns: its names without imports, helpers and leading underscores."""
    source = path.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__file__": str(path), "__name__": f"group_data.{path.stem}"}
    exec(compile(source, str(path), "exec"), names)  # noqa: S102 - it is the owner's own configuration
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return {
        name: value
        for name, value in names.items()
        if not name.startswith("_")
        and name not in imported
        and not callable(value)
        and not isinstance(value, ModuleType)
    }


def order(traits: Sequence[str], groups: Sequence[str]) -> list[str]:
    """Names of the layers that apply to a box, weakest first: all, its traits, then the owner's groups."""
    return ["all", *traits, *[group for group in groups if group != "all" and group not in traits]]


def merge(layers: Iterable[Layer]) -> Merged:
    """Resolve layers, weakest first. Raises ConfigError when what comes out is not valid."""
    found = tuple(layers)
    given = Values()
    for layer in found:
        given.lay(layer.source, layer.values)
    last = found[-1].source if found else "settings"
    return Merged(read(Settings, given.values, last), found, given)
