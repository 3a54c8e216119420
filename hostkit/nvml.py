"""The cards as NVML tells them. Each call stands alone: one that fails leaves null in its place, no more."""

from __future__ import annotations

import ctypes
from typing import Any

from hostkit import driver, nvlink
from hostkit.roots import Roots

MIB = 1024 * 1024
NOT_SUPPORTED, FUNCTION_NOT_FOUND = 3, 13


class Asker:
    """Calls pynvml's functions by name and keeps what went wrong beyond "this card has no such thing"."""

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self.errors: list[str] = []

    def __call__(self, function: str, *arguments: Any, quiet: tuple[int, ...] = ()) -> Any:
        try:
            return getattr(self.pynvml, function)(*arguments)
        except AttributeError:  # a pynvml that does not know it
            return None
        except (self.pynvml.NVMLError, ctypes.ArgumentError) as error:
            if getattr(error, "value", None) not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND) + quiet:
                message = f"{function}: {error}"
                if message not in self.errors:
                    self.errors.append(message)
            return None


def read(roots: Roots) -> dict[str, Any]:
    """Empty where no driver's library is; raises what nvmlInit raises."""
    if not driver.library_path(roots):
        return {}
    import pynvml  # only here: it is most of the probe's time, and a box without a card needs none of it

    pynvml.nvmlInit()
    return describe(pynvml, driver.read(roots)["driver"])


def describe(pynvml: Any, from_files: dict[str, Any]) -> dict[str, Any]:
    ask = Asker(pynvml)
    handles = {index: ask("nvmlDeviceGetHandleByIndex", index) for index in range(ask("nvmlDeviceGetCount") or 0)}
    handles = {index: handle for index, handle in handles.items() if handle is not None}
    gpus = [_gpu(ask, index, handle) for index, handle in handles.items()]
    buses = {gpu["index"]: gpu["bus_id"] for gpu in gpus}
    return {
        "driver": {
            "version": ask("nvmlSystemGetDriverVersion") or from_files["version"],
            "cuda": _cuda(ask("nvmlSystemGetCudaDriverVersion_v2")),
            "module": from_files["module"],
        },
        "gpus": gpus,
        "links": nvlink.links(ask, handles, buses),
        "p2p_read": nvlink.p2p_read(ask, handles),
        "errors": ask.errors,
    }


def _cuda(version: int | None) -> str | None:
    return f"{version // 1000}.{version % 1000 // 10}" if version else None


def _gpu(ask: Asker, index: int, handle: Any) -> dict[str, Any]:
    pci = ask("nvmlDeviceGetPciInfo", handle)
    capability = ask("nvmlDeviceGetCudaComputeCapability", handle)
    display = ask("nvmlDeviceGetDisplayActive", handle)
    # the first version counts what the driver keeps for itself as used
    memory = ask("nvmlDeviceGetMemoryInfo", handle, ask.pynvml.nvmlMemory_v2) or ask("nvmlDeviceGetMemoryInfo", handle)
    return {
        "index": index,
        "uuid": ask("nvmlDeviceGetUUID", handle),
        "name": ask("nvmlDeviceGetName", handle),
        "compute_capability": list(capability) if capability else None,
        "memory_mib": memory.total // MIB if memory else None,
        "memory_used_mib": memory.used // MIB if memory else None,
        "bus_id": _text(pci.busId) if pci else None,
        "display_active": None if display is None else bool(display),
        "processes": [
            {"pid": process.pid, "memory_mib": None if process.usedGpuMemory is None else process.usedGpuMemory // MIB}
            for process in ask("nvmlDeviceGetComputeRunningProcesses", handle) or []
        ],
    }


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
