"""Whether there is an NVIDIA driver at all, from files and modinfo: answers also where NVML hangs or refuses."""

from __future__ import annotations

import os
import re

from hostkit.guard import Tell
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_DIRECTORIES = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
]


def is_there(roots: Roots) -> bool:
    """Whether a driver is installed or loaded, as far as its files tell."""
    return bool(library_path(roots)) or os.path.exists(roots.path("/sys/module/nvidia"))


def read(roots: Roots, tell: Tell) -> dict[str, Any]:
    """{"driver", "nouveau"}; `module` is the loaded one, `module_on_disk` the one the next boot loads."""
    library = library_path(roots)
    module = (roots.text_or_none("/sys/module/nvidia/version") or "").strip() or None
    nouveau = os.path.exists(roots.path("/sys/module/nouveau"))
    if not library and not module:
        return {"driver": None, "nouveau": nouveau}
    known = {
        "version": _version(library) or module or "unknown",
        "cuda": None,
        "module": module,
        "flavour": _loaded_flavour(roots),
        "module_on_disk": None,
    }
    tell.known({"driver": known, "nouveau": nouveau})
    tell.doing("modinfo")
    on_disk = _modinfo(roots)
    if known["flavour"] is None:
        known["flavour"] = _FLAVOURS.get(on_disk.get("license", ""))
    known["module_on_disk"] = on_disk.get("version")
    return {"driver": known, "nouveau": nouveau}


# by the licence that the module declares
_FLAVOURS = {"NVIDIA": "closed", "Dual MIT/GPL": "open"}


def _loaded_flavour(roots: Roots) -> str | None:
    text = roots.text_or_none("/proc/driver/nvidia/version")
    if not text or "NVRM version" not in text:
        return None
    return "open" if "Open Kernel Module" in text else "closed"


def _modinfo(roots: Roots) -> dict[str, str]:
    """Of the running kernel's module; empty when there is none, or no modinfo: a container has neither."""
    try:
        printed = roots.output("modinfo", "nvidia") or ""
    except OSError:
        return {}
    return dict(re.findall(r"^(version|license):[ \t]*(.*?)[ \t]*$", printed, re.MULTILINE))


def library_path(roots: Roots) -> str | None:
    """The library in the places the loader looks; a bare name when only the loader's cache knows where it is."""
    # what the loader takes from the environment lies outside of any other root
    environment = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    for directory in environment + [roots.path(path) for path in _DIRECTORIES]:
        path = os.path.join(directory, LIBRARY)
        if os.path.exists(path):
            return path
    try:
        with open(roots.path("/etc/ld.so.cache"), "rb") as cache:
            return LIBRARY if LIBRARY.encode() + b"\0" in cache.read() else None
    except FileNotFoundError:
        return None


def _version(library: str | None) -> str | None:
    """libnvidia-ml.so.1 is a link to libnvidia-ml.so.580.159.03."""
    found = re.search(r"\.so\.(\d+\.[\d.]+)$", os.path.realpath(library)) if library else None
    return found.group(1) if found else None
