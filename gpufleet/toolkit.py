"""Which CUDA toolkit a box gets, by apt: the one its stacks name, else the newest that compiles for its GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpufleet.settings import Settings

if TYPE_CHECKING:
    from gpufleet.instance import Instance
    from gpufleet.plan import BoxPlan
    from gpufleet.stacks import Stack

# CUDA 13 compiles nothing below compute capability 7.5 (`nvcc --list-gpu-arch` of 13.0 begins at compute_75);
# 12.9 is the last that compiles 7.0.
NEWEST, NEWEST_BELOW_75 = "13-0", "12-9"
# Names of packages, as hostkit/apt_names.py has them: parts of a toolkit, and what brings a driver along.
TOOLKIT = re.compile(
    r"^(cuda-(?!drivers|compat)|gds-tools|nsight-|nvidia-(cuda-|profiler|visual-profiler|nsight)"
    r"|lib(accinj|cublas|cudart|cudla|cufft|cufile|cuinj|cuobj|cupti|curand|cusolver|cusparse)"
    r"|lib(npp[\dcis-]|nvblas|nvfatbin|nvjitlink|nvjpeg|nvptxcompiler|nvrtc|nvtoolsext|nvvm))"
)
METAPACKAGE = re.compile(r"^cuda(-\d+-\d+)?$|^cuda-(runtime|demo-suite)(-|$)")


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


def keeps_off(plan: BoxPlan) -> bool | None:
    """Whether unattended-upgrades is kept off driver, kernel and toolkit: where GPUs serve or a toolkit is wanted.

    False where the owner wants it undone, None where nothing is done about it.
    """
    if not plan.settings.host.install_packages:
        return None
    if not plan.settings.host.hold_packages:
        return False
    return True if plan.toolkits or any(instance.gpus for instance in plan.instances) else None


def is_of_toolkit(package: str) -> bool:
    return bool(TOOLKIT.match(package))


def version(toolkit: str) -> str:
    """`13.0` for `13-0`."""
    return toolkit.replace("-", ".")


def distro(os_facts: Mapping[str, Any]) -> str:
    """NVIDIA's name of a distribution in its repository's path: debian12, ubuntu2404."""
    version_id = str(os_facts["version_id"])
    return f"{os_facts['id']}{version_id.replace('.', '')}"
