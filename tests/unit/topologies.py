"""Boxes for tests of topology: the scenarios of the lab, and others that boards and bridges make."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

SCENARIOS = Path(__file__).parents[2] / "lab" / "topologies"

Gpus = list[dict[str, Any]]
Links = dict[str, str]


def scenario(name: str) -> tuple[Gpus, Links]:
    """The GPUs and links of a scenario of the lab."""
    data = json.loads((SCENARIOS / f"{name}.json").read_text())
    return data["gpus"], data["links"]


def cards(
    count: int, name: str = "NVIDIA GeForce RTX 3090", capability: tuple[int, int] = (8, 6), first: int = 0
) -> Gpus:
    """Equal cards with the indexes from `first` on."""
    return [
        {"index": first + i, "name": name, "compute_capability": list(capability), "memory_mib": 24576}
        for i in range(count)
    ]


def joined(count: int, found: Mapping[str, str], otherwise: str = "SYS") -> Links:
    """A link for each pair of `count` GPUs."""
    return {f"{a}-{b}": found.get(f"{a}-{b}", otherwise) for a, b in combinations(range(count), 2)}


def among(groups: Sequence[Sequence[int]], link: str) -> Links:
    """The same link for each pair inside each group."""
    return {f"{a}-{b}": link for group in groups for a, b in combinations(sorted(group), 2)}


def without(links: Links, *pairs: str) -> Links:
    """The same with these pairs across sockets."""
    return {pair: "SYS" if pair in pairs else link for pair, link in links.items()}


def left_of(name: str, kept: Sequence[int]) -> tuple[Gpus, Links]:
    """A scenario with only these GPUs seated, numbered anew."""
    gpus, links = scenario(name)
    kept_links = {f"{a}-{b}": links[f"{kept[a]}-{kept[b]}"] for a, b in combinations(range(len(kept)), 2)}
    return [{**gpus[old], "index": new} for new, old in enumerate(kept)], kept_links
