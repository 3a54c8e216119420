"""Which CUDA toolkit a box gets, by apt: the one its stacks name, else the newest that compiles for its GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpufleet.settings import Settings

if TYPE_CHECKING:
    from gpufleet.instance import Instance
    from gpufleet.stacks import Stack

# CUDA 13 compiles nothing below compute capability 7.5 (`nvcc --list-gpu-arch` of 13.0 begins at compute_75);
# 12.9 is the last that compiles 7.0.
NEWEST, NEWEST_BELOW_75 = "13-0", "12-9"


def toolkit_for(stack: Stack, settings: Settings, cards: Sequence[Mapping[str, Any]]) -> str | None:
    """`13-0`, what an instance of a stack compiles with: the owner's, the stack's, else the newest for its cards."""
    chosen = settings.host.toolkit or stack.cuda_toolkit or newest(cards)
    return None if chosen in (None, "none") else chosen


def newest(cards: Sequence[Mapping[str, Any]]) -> str | None:
    """The newest toolkit that compiles for all these cards; None without any."""
    if not cards:
        return None
    lowest = min(tuple(gpu["compute_capability"]) for gpu in cards)
    return NEWEST if lowest >= (7, 5) else NEWEST_BELOW_75


def toolkit_for_box(facts: Mapping[str, Any], settings: Settings, instances: Sequence[Instance]) -> list[str]:
    """The toolkits a box gets by apt: its instances', side by side; without instances the newest for its cards."""
    if instances:
        return sorted({item.cuda_toolkit for item in instances if item.cuda_toolkit})
    chosen = settings.host.toolkit or newest(facts.get("gpus") or [])
    return [] if chosen in (None, "none") else [chosen]


def version(toolkit: str) -> str:
    """`13.0` for `13-0`."""
    return toolkit.replace("-", ".")


def distro(os_facts: Mapping[str, Any]) -> str:
    """NVIDIA's name of a distribution in its repository's path: debian12, ubuntu2404."""
    version_id = str(os_facts["version_id"])
    return f"{os_facts['id']}{version_id.replace('.', '')}"
