"""The cards as NVML tells them. Each call stands alone: one that fails leaves null in its place, no more.

What matters most is asked first and told at once, so that a call that hangs costs only what comes after it.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from hostkit import driver, listeners, nvlink
from hostkit.guard import Tell
from hostkit.roots import Roots

MIB = 1024 * 1024
NOT_SUPPORTED, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 3, 12, 13


class Asker:
    """Calls pynvml's functions by name and keeps what went wrong beyond "this card has no such thing".

    `about` is what the calls are about now: `GPU 0`, or empty.
    """

    def __init__(self, pynvml: Any, tell: Tell) -> None:
        self.pynvml = pynvml
        self.tell = tell
        self.about = ""
        self._errors: dict[str, list[str]] = {}  # message: what it was about

    def errors(self) -> list[str]:
        """`nvmlDeviceGetName: GPU is lost (GPU 0, GPU 1)`."""
        return [
            f"{message} ({', '.join(about)})" if about != [""] else message for message, about in self._errors.items()
        ]

    def __call__(self, function: str, *arguments: Any, quiet: tuple[int, ...] = ()) -> Any:
        self.tell.doing(f"{function} of {self.about}" if self.about else function)
        try:
            return getattr(self.pynvml, function)(*arguments)
        except AttributeError:  # a pynvml that does not know it
            return None
        except Exception as error:  # NVMLError, and what ctypes raises when the library is not what pynvml expects
            if getattr(error, "value", None) not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND) + quiet:
                about = self._errors.setdefault(f"{function}: {error}", [])
                if self.about not in about:
                    about.append(self.about)
            return None


def read(roots: Roots, tell: Tell) -> dict[str, Any]:
    """Empty where no driver's library is; raises what nvmlInit raises, or OSError when the library cannot be loaded."""
    if not driver.library_path(roots):
        return {}
    tell.doing("loading the library")
    import pynvml  # only here: it is most of the probe's time, and a box without a card needs none of it

    tell.doing("nvmlInit")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value == LIBRARY_NOT_FOUND:
            ctypes.CDLL(driver.LIBRARY)  # it is there: raises what the loader has against it
        raise
    return describe(pynvml, roots, tell)


def describe(pynvml: Any, roots: Roots, tell: Tell) -> dict[str, Any]:
    """`driver` has only what NVML knows of it."""
    ask = Asker(pynvml, tell)
    version, cuda = ask("nvmlSystemGetDriverVersion"), _cuda(ask("nvmlSystemGetCudaDriverVersion_v2"))
    answer: dict[str, Any] = {"driver": {"version": version, "cuda": cuda}, "gpus": []}
    _tell(ask, answer)
    handles = _handles(ask)
    answer["gpus"] = [{"index": index, **_UNKNOWN} for index in handles]
    _tell(ask, answer)
    for part in (_identity, nvlink.nvlinks, _settings):
        _of_each(ask, answer, handles, part)
    for pairs in (nvlink.links, nvlink.p2p):
        answer.update(pairs(ask, handles, answer["gpus"]))
        _tell(ask, answer)
    # last: this hangs first when a process on the card cannot be ended
    _of_each(ask, answer, handles, lambda ask, handle: {"processes": processes(ask, roots, handle)})
    return {**answer, "errors": ask.errors()}


def _tell(ask: Asker, answer: dict[str, Any]) -> None:
    ask.tell.known({**answer, "errors": ask.errors()})


def _handles(ask: Asker) -> dict[int, Any]:
    """By index; a card that is lost has none."""
    handles = {}
    for index in range(ask("nvmlDeviceGetCount") or 0):
        ask.about = f"GPU {index}"
        handles[index] = ask("nvmlDeviceGetHandleByIndex", index)
    ask.about = ""
    return {index: handle for index, handle in handles.items() if handle is not None}


def _of_each(
    ask: Asker, answer: dict[str, Any], handles: dict[int, Any], part: Callable[[Asker, Any], dict[str, Any]]
) -> None:
    for gpu in answer["gpus"]:
        ask.about = f"GPU {gpu['index']}"
        gpu.update(part(ask, handles[gpu["index"]]))
        _tell(ask, answer)
    ask.about = ""


# lists are replaced, never changed
_UNKNOWN: dict[str, Any] = {
    "uuid": None,
    "name": None,
    "compute_capability": None,
    "memory_mib": None,
    "memory_used_mib": None,
    "bus_id": None,
    "display_active": None,
    "pcie": {"gen": None, "gen_max": None, "width": None, "width_max": None},
    "power": {"limit_w": None, "default_w": None, "min_w": None, "max_w": None},
    "persistence": None,
    "ecc": None,
    "mig": None,
    "nvlinks": [],
    "processes": [],
}


def _cuda(version: int | None) -> str | None:
    return f"{version // 1000}.{version % 1000 // 10}" if version else None


def _identity(ask: Asker, handle: Any) -> dict[str, Any]:
    pci = ask("nvmlDeviceGetPciInfo", handle)
    capability = ask("nvmlDeviceGetCudaComputeCapability", handle)
    told = memory(ask, handle)
    return {
        "bus_id": nvlink.text(pci.busId) if pci else None,
        "uuid": ask("nvmlDeviceGetUUID", handle),
        "name": ask("nvmlDeviceGetName", handle),
        "compute_capability": list(capability) if capability else None,
        "memory_mib": told.total // MIB if told else None,
        "memory_used_mib": told.used // MIB if told else None,
    }


def memory(ask: Asker, handle: Any) -> Any:
    """NVML's own answer, in bytes: `total`, `used`, `free`; None when there is none."""
    # the first version counts what the driver keeps for itself as used
    told = ask("nvmlDeviceGetMemoryInfo", handle, getattr(ask.pynvml, "nvmlMemory_v2", None))
    return told or ask("nvmlDeviceGetMemoryInfo", handle)


def _settings(ask: Asker, handle: Any) -> dict[str, Any]:
    least, most = ask("nvmlDeviceGetPowerManagementLimitConstraints", handle) or (None, None)
    return {
        "pcie": {
            "gen": ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            "gen_max": ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            "width": ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
            "width_max": ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        },
        "power": {
            "limit_w": _watts(ask("nvmlDeviceGetPowerManagementLimit", handle)),
            "default_w": _watts(ask("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
            "min_w": _watts(least),
            "max_w": _watts(most),
        },
        "persistence": _bool(ask("nvmlDeviceGetPersistenceMode", handle)),
        "ecc": _current(ask("nvmlDeviceGetEccMode", handle)),
        "mig": _current(ask("nvmlDeviceGetMigMode", handle)),
        "display_active": _bool(ask("nvmlDeviceGetDisplayActive", handle)),
    }


def _watts(milliwatts: int | None) -> int | None:
    return None if milliwatts is None else round(milliwatts / 1000)


def _bool(state: int | None) -> bool | None:
    return None if state is None else bool(state)


def _current(modes: list[int] | None) -> bool | None:
    """NVML tells the current mode and the one after the next reset."""
    return _bool(modes[0]) if modes else None


def processes(ask: Asker, roots: Roots, handle: Any) -> list[dict[str, Any]]:
    """By pid; one that computes and draws is told as `compute`."""
    found: dict[int, dict[str, Any]] = {}
    for kind in ("Graphics", "Compute"):
        for process in ask(f"nvmlDeviceGet{kind}RunningProcesses", handle) or []:
            used = process.usedGpuMemory
            found[process.pid] = {
                "pid": process.pid,
                "memory_mib": None if used is None else used // MIB,
                "name": (roots.text_or_none(f"/proc/{process.pid}/comm") or "").strip() or None,
                "kind": kind.lower(),
                "unit": listeners.unit_of(roots, process.pid),
            }
    return [found[pid] for pid in sorted(found)]
