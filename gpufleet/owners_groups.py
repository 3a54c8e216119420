"""The groups that an owner makes in the inventory file: lists of names, written out or computed there."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def written(source: Path) -> dict[str, list[str]]:
    """The groups an inventory file defines by hand: module-level lists of names, read without running it again."""
    groups: dict[str, list[str]] = {}
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
            members = [item.elts[0] if isinstance(item, ast.Tuple) and item.elts else item for item in node.value.elts]
            names = [str(member.value) for member in members if isinstance(member, ast.Constant)]
            for target in node.targets:
                if isinstance(target, ast.Name) and not target.id.startswith("_"):
                    groups[target.id] = names
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
