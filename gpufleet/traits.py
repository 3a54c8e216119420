"""What a box is, in words that group_data files and `--limit` can use: sm75, nvlink, nv2, gpus2, cpu."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# Architectures that CUDA 12 and 13 compile for (`nvcc --list-gpu-arch` of 12.9 and 13.0).
ARCH = r"sm(50|52|53|60|61|62|70|72|75|80|86|87|88|89|90|100|101|103|110|120|121)"
PATTERN = re.compile(rf"^(cpu|nvlink|pcie|nv\d+|gpus\d+|{ARCH}(_(nvlink|pcie))?)$")


def arch(gpu: Mapping[str, Any]) -> str:
    """`sm75` for compute capability 7.5."""
    major, minor = gpu["compute_capability"]
    return f"sm{major}{minor}"


def traits_of(facts: Mapping[str, Any]) -> list[str]:
    """The traits of a box, from its facts, in the order in which their layers apply (weakest first).

    `nvlink` when some pair of GPUs is joined by it, else `pcie` when there are several GPUs; `nvN` by the most links
    of a pair. A box with unlike GPUs has a trait for each architecture, and `sm70_nvlink` only when two such cards
    are joined.
    """
    gpus = facts.get("gpus") or []
    if not gpus:
        return ["cpu"]
    links = facts.get("links") or {}
    kinds: dict[str, list[int]] = {}
    for gpu in gpus:
        kinds.setdefault(arch(gpu), []).append(gpu["index"])
    archs = sorted(kinds, key=lambda name: int(name[2:]))
    both = [f"{name}_{kind}" for name in archs for kind in _kind(links, kinds[name])]
    return archs + _kind(links, [gpu["index"] for gpu in gpus]) + both + _counts(links) + [f"gpus{len(gpus)}"]


def _kind(links: Mapping[str, str], indexes: Sequence[int]) -> list[str]:
    """`nvlink` or `pcie` for several GPUs, nothing for one."""
    inside = [link for pair, link in links.items() if {int(index) for index in pair.split("-")} <= set(indexes)]
    if any(link.startswith("NV") for link in inside):
        return ["nvlink"]
    return ["pcie"] if len(indexes) > 1 else []


def _counts(links: Mapping[str, str]) -> list[str]:
    bridged = [int(link[2:]) for link in links.values() if link.startswith("NV")]
    return [f"nv{max(bridged)}"] if bridged else []


def traits_of_group(facts: Mapping[str, Any], group: Sequence[int], link: str | None) -> list[str]:
    """The traits of an instance on a group of GPUs: its own cards' and its own link's, not those of the box's others.

    + link: the weakest inside the group. A single GPU has the link trait of the cards of its kind.
    """
    if not group:
        return traits_of(facts)
    gpus = facts["gpus"]
    own = {arch(gpu) for gpu in gpus if gpu["index"] in group}
    links = facts.get("links") or {}
    inside = [gpu["index"] for gpu in gpus if (gpu["index"] in group if link else arch(gpu) in own)]
    among = {pair: word for pair, word in links.items() if {int(index) for index in pair.split("-")} <= set(inside)}
    archs = sorted(own, key=lambda name: int(name[2:]))
    kinds, counts = _kind(among, inside), _counts(among)
    if link is not None:
        kinds, counts = (["nvlink"], [link.lower()]) if link.startswith("NV") else (["pcie"], [])
    return archs + kinds + [f"{name}_{kind}" for name in archs for kind in kinds] + counts + [f"gpus{len(gpus)}"]


def is_trait(name: str) -> bool:
    """Whether a name is a trait some box could have."""
    return bool(PATTERN.match(name))


def is_arch(name: str) -> bool:
    """Whether a trait is an architecture: `sm75`, or `cpu` for a box without GPU."""
    return name == "cpu" or bool(re.fullmatch(ARCH, name))


def is_link(name: str) -> bool:
    """Whether a trait tells how a box's GPUs are joined: `nvlink`, `pcie`, `nv2`."""
    return name in ("nvlink", "pcie") or bool(re.fullmatch(r"nv\d+", name))
