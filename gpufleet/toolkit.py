"""Which CUDA toolkit a box gets, by apt: the one its stacks name, else the newest that compiles for its GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpufleet.settings import Settings

if TYPE_CHECKING:
    from gpufleet.plan import Instance

# CUDA 13 compiles nothing below compute capability 7.5 (`nvcc --list-gpu-arch` of 13.0 begins at compute_75);
# 12.9 is the last that compiles 7.0.
NEWEST, NEWEST_BELOW_75 = "13-0", "12-9"


def toolkit_for(facts: Mapping[str, Any], settings: Settings, instances: Iterable[Instance]) -> str | None:
    """`13-0`, or None for a box that needs none: one without GPUs, or where the owner says `none`."""
    chosen = settings.host.toolkit
    if chosen is None:
        chosen = next((item.stack.cuda_toolkit for item in instances if item.stack.cuda_toolkit), None)
    if chosen is None:
        gpus = facts.get("gpus") or []
        if gpus:
            lowest = min(tuple(gpu["compute_capability"]) for gpu in gpus)
            chosen = NEWEST if lowest >= (7, 5) else NEWEST_BELOW_75
    return None if chosen in (None, "none") else chosen


def version(toolkit: str) -> str:
    """`13.0` for `13-0`."""
    return toolkit.replace("-", ".")


def distro(os_facts: Mapping[str, Any]) -> str:
    """NVIDIA's name of a distribution in its repository's path: debian12, ubuntu2404."""
    version_id = str(os_facts["version_id"])
    return f"{os_facts['id']}{version_id.replace('.', '')}"
