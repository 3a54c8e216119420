"""What `gpufleet gc` shows of what boxes answered: rows with sizes, and which of it goes. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Of these a box has many, and nobody reads their names.
SUMMED = {"store": "files of the store", "release": "releases", "cache": "compile caches"}
MANY = 3


@dataclass(frozen=True)
class Row:
    """One line of the table; size in bytes."""

    kind: str
    name: str
    size: int
    why: str


def rows(items: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The largest first; many of a kind for one reason are one row."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for item in items:
        groups.setdefault((item["kind"], item["why"]), []).append(item)
    found: list[Row] = []
    for (kind, why), group in groups.items():
        if kind in SUMMED and len(group) > MANY:
            found.append(Row(kind, f"{len(group)} {SUMMED[kind]}", sum(item["bytes"] for item in group), why))
        else:
            found += [Row(kind, item["name"], item["bytes"], why) for item in group]
    return sorted(found, key=lambda row: (-row.size, row.kind, row.name))


def going(items: Iterable[Mapping[str, Any]], models: bool) -> list[Mapping[str, Any]]:
    """What a sweep frees: all of it, models only when asked for."""
    return [item for item in items if models or item["kind"] != "model"]


def total(items: Iterable[Mapping[str, Any]]) -> int:
    return sum(item["bytes"] for item in items)


def human(size: float) -> str:
    """`812 KiB`, `4.2 GiB`"""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def summary(answer: Mapping[str, Any], models: bool) -> str:
    """The line of one box below its rows."""
    kept = answer["kept"]
    freed = human(total(going(answer["items"], models)))
    stays = ", ".join(f"{kind}s {human(kept[kind])}" for kind in ("runtime", "model") if kept.get(kind))
    stays += f", store {human(kept['store'])}" if kept.get("store") else ""
    young = f"; {len(answer['young'])} things younger than an hour are left" if answer["young"] else ""
    return f"{freed} can go, {human(answer['free'])} are free; in use: {stays or 'nothing'}{young}"
