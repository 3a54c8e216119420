"""The variables that every service gets: its cards, and the places of its runtime, toolkit and caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpufleet.models import Model
from gpufleet.runtime import Runtime
from gpufleet.toolkit import version

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
PLACEHOLDER = "{cores}"
# Where engines and compilers keep what they compiled, by the folder of it below an instance's cache.
CACHES = {
    "VLLM_CACHE_ROOT": "vllm",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "XDG_CACHE_HOME": "xdg",
}


def state_path(name: str) -> str:
    """The home of an instance's service, its own to write in."""
    return f"/var/lib/gpufleet-{name}"


def cache_path(name: str, runtime: Runtime, model: Model) -> str:
    """Compile caches of an instance, apart for each runtime and model."""
    return f"/var/cache/gpufleet-{name}/{runtime.name}/{model.name}-{model.directory}"


def always(cards: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Which cards, whatever any layer says.

    By UUID and in PCI order: CUDA's own order is by speed and differs from nvidia-smi's on unlike cards.
    """
    uuids = ",".join(str(gpu["uuid"]) for gpu in cards)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": uuids}


def computed(
    name: str, runtime: Runtime, model: Model, cards: Sequence[Mapping[str, Any]], toolkit: str | None
) -> list[tuple[str, dict[str, str]]]:
    """(reason, variables) of an instance, for those that no layer set.

    Caches are separate for each instance, runtime and model: a compile cache that another one left crashes.
    """
    path = [f"{runtime.path}/bin"]
    found: list[tuple[str, dict[str, str]]] = []
    if cards:
        found.append(("computed: the instance's GPUs", {"TORCH_CUDA_ARCH_LIST": _arch(cards)}))
    if toolkit:
        cuda = f"/usr/local/cuda-{version(toolkit)}"
        path.append(f"{cuda}/bin")
        found.append(("computed: the toolkit", {"CUDA_HOME": cuda, "LD_LIBRARY_PATH": f"{cuda}/lib64"}))
    cache = cache_path(name, runtime, model)
    places = {
        "PATH": ":".join([*path, *SYSTEM_PATH]),
        "HOME": state_path(name),
        **{name: f"{cache}/{folder}" for name, folder in CACHES.items()},
        "HF_HUB_OFFLINE": "1",
    }
    return [*found, ("computed: places of this instance", places)]


def _arch(cards: Sequence[Mapping[str, Any]]) -> str:
    """`7.5`: what is compiled on the box is compiled for its own cards, never for a default list."""
    return ";".join(sorted({"{}.{}".format(*gpu["compute_capability"]) for gpu in cards}))
