"""The groups that an owner makes in the inventory file: lists of names, computed above `by_traits` or written."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gpufleet.errors import nearest
from gpufleet.traits import is_trait


def written(source: Path, after: int = 0) -> dict[str, list[str]]:
    """The groups written out as module-level lists of names below line `after`, read without running the file again."""
    groups: dict[str, list[str]] = {}
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if node.lineno > after and isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
            members = [item.elts[0] if isinstance(item, ast.Tuple) and item.elts else item for item in node.value.elts]
            names = [member.value for member in members if isinstance(member, ast.Constant)]
            texts = [name for name in names if isinstance(name, str)]
            for target in node.targets:
                if isinstance(target, ast.Name) and not target.id.startswith("_") and len(texts) == len(members):
                    groups[target.id] = texts
    return groups


def computed(names: Mapping[str, Any]) -> dict[str, list[str]]:
    """The groups among an inventory's names: lists of boxes, as pyinfra takes them."""
    groups = {}
    for name, value in names.items():
        if isinstance(value, list) and not name.startswith("_"):
            members = [item[0] if isinstance(item, tuple) and item else item for item in value]
            if all(isinstance(member, str) for member in members):
                groups[name] = members
    return groups


def own(source: Path, names: Mapping[str, Any], boxes: Any, after: int) -> dict[str, list[str]]:
    """The owner's groups of an inventory: without the list of all boxes that was handed to `by_traits`.

    + names: what the file had assigned when it called `by_traits(boxes)` in line `after`; below that, only lists that
      are written out can be known
    """
    groups = {**written(source, after), **computed(names)}
    return {name: members for name, members in groups.items() if names.get(name) is not boxes}


def problems(
    groups: Mapping[str, list[str]], names: Mapping[str, Any], boxes: Any, called: Collection[str], stem: str
) -> list[str]:
    """What is wrong with the owner's groups, a line each: names that are taken, members that are no box.

    + names, boxes: as for `own`
    + called: the names of all boxes
    + stem: the inventory file's name, which is a group of all boxes
    """
    found = []
    handed = [name for name, value in names.items() if value is boxes and not name.startswith("_")]
    for group in [*groups, *handed]:
        if why := f"{group} is a box" if group in called else made(group, None if group in handed else stem):
            found.append(f"group {group!r}: give it another name: {why}")
    for group, members in groups.items():
        otherwise = f"(a list of anything else: call it _{group})"
        found += [
            f"group {group!r}: {member!r} is no box{nearest(member, called)} {otherwise}"
            for member in dict.fromkeys(members)
            if member not in called
        ]
    for name, value in names.items():
        if isinstance(value, tuple) and not name.startswith("_") and value is not boxes:
            found.append(
                f"{name} is a tuple, which pyinfra takes for a group: call it _{name}; a group is a list of names"
            )
    return found


def made(name: str, stem: str | None) -> str:
    """Which group gpufleet makes that is called so, and neither a box nor a group of the owner's can be; else nothing.

    + stem: the inventory file's name; None for what may be called as the groups of all boxes are
    """
    if is_trait(name):
        return f"{name} is a group made by gpufleet, of the boxes with that trait"
    of_all = stem is not None and name in ("all", "fleet", stem)
    return f"{name} is a group made by gpufleet, of all boxes" if of_all else ""
