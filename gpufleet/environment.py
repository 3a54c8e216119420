"""The variables that every service gets: its cards, and the places of its runtime, toolkit and caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpufleet.paths import ROOT
from gpufleet.stacks import Stack
from gpufleet.toolkit import version

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
PLACEHOLDER = "{cores}"


def always(cards: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Which cards, whatever any layer says.

    By UUID and in PCI order: CUDA's own order is by speed and differs from nvidia-smi's on unlike cards.
    """
    uuids = ",".join(str(gpu["uuid"]) for gpu in cards)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": uuids}


def computed(
    name: str, stack: Stack, cards: Sequence[Mapping[str, Any]], toolkit: str | None
) -> list[tuple[str, dict[str, str]]]:
    """(reason, variables) of an instance, for those that no layer set.

    Caches are separate for each instance and runtime: a compile cache left by another model or version crashes.
    """
    runtime = f"{ROOT}/runtimes/{stack.runtime}"
    path = [f"{runtime}/bin"]
    found: list[tuple[str, dict[str, str]]] = []
    if cards:
        found.append(("computed: the instance's GPUs", {"TORCH_CUDA_ARCH_LIST": _arch(cards)}))
    if toolkit:
        cuda = f"/usr/local/cuda-{version(toolkit)}"
        path.append(f"{cuda}/bin")
        found.append(("computed: the toolkit", {"CUDA_HOME": cuda, "LD_LIBRARY_PATH": f"{cuda}/lib64"}))
    cache = f"/var/cache/gpufleet-{name}/{stack.runtime}"
    places = {
        "PATH": ":".join([*path, *SYSTEM_PATH]),
        "HOME": f"/var/lib/gpufleet-{name}",
        "VLLM_CACHE_ROOT": f"{cache}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "TRITON_CACHE_DIR": f"{cache}/triton",
        "TORCH_EXTENSIONS_DIR": f"{cache}/torch_extensions",
        "FLASHINFER_WORKSPACE_BASE": f"{cache}/flashinfer",
        "XDG_CACHE_HOME": f"{cache}/xdg",
        "HF_HUB_OFFLINE": "1",
    }
    return [*found, ("computed: places of this instance", places)]


def _arch(cards: Sequence[Mapping[str, Any]]) -> str:
    """`7.5`: what is compiled on the box is compiled for its own cards, never for a default list."""
    return ";".join(sorted({"{}.{}".format(*gpu["compute_capability"]) for gpu in cards}))
