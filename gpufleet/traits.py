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
    of a pair. A box with unlike GPUs has a trait for each architecture.
    """
    gpus = facts.get("gpus") or []
    if not gpus:
        return ["cpu"]
    archs = sorted({arch(gpu) for gpu in gpus}, key=lambda name: int(name[2:]))
    bridged = [int(link[2:]) for link in (facts.get("links") or {}).values() if link.startswith("NV")]
    link = ["nvlink"] if bridged else ["pcie"] if len(gpus) > 1 else []
    both = [f"{name}_{kind}" for name in archs for kind in link]
    counts = ([f"nv{max(bridged)}"] if bridged else []) + [f"gpus{len(gpus)}"]
    return archs + link + both + counts


def is_trait(name: str) -> bool:
    """Whether a name is a trait some box could have."""
    return bool(PATTERN.match(name))


def traits_of_group(facts: Mapping[str, Any], group: Sequence[int], link: str | None) -> list[str]:
    """The traits of an instance on a group of GPUs: its own cards' and its own link's, not those of the box's others.

    + link: the weakest inside the group. A single GPU has the link trait of its box.
    """
    box = traits_of(facts)
    if not group:
        return box
    own = {arch(gpu) for gpu in facts["gpus"] if gpu["index"] in group}
    archs = [name for name in box if name in own]
    kinds = [name for name in box if name in ("nvlink", "pcie")]
    counts = [name for name in box if name.startswith("nv") and name != "nvlink"]
    if link is not None:
        kinds = ["nvlink" if link.startswith("NV") else "pcie"]
        counts = [link.lower()] if link.startswith("NV") else []
    return archs + kinds + [f"{name}_{kind}" for name in archs for kind in kinds] + counts + box[-1:]
