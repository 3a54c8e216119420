"""How the box was booted, and what it runs beside the engine: files alone, no process."""

from __future__ import annotations

import os
import re

from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# 8be4df61-…: the vendor id of the variables that the UEFI specification defines; four bytes of attributes, then it
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
DISPLAY_MANAGER = "display-manager.service"
INSTALLER = "/usr/bin/nvidia-uninstall"
_UNITS = "/etc/systemd/system/"
# version 2, and version 1 or hybrid
_TREES = ("/sys/fs/cgroup/system.slice/", "/sys/fs/cgroup/systemd/system.slice/")


def read(roots: Roots) -> dict[str, Any]:
    return {
        "secure_boot": _secure_boot(roots),
        "overcommit_memory": _number(roots.text_or_none("/proc/sys/vm/overcommit_memory")),
        "display_manager": _display_manager(roots),
        "nvidia_installer": os.path.exists(roots.path(INSTALLER)),
        "cuda_compat": _cuda_compat(roots),
    }


def _secure_boot(roots: Roots) -> bool | None:
    """None without the variable: booted by a BIOS, or a container."""
    variable = roots.bytes_or_none(SECURE_BOOT)
    return variable[-1] == 1 if variable else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.strip().isdigit() else None


def _display_manager(roots: Roots) -> str | None:
    """The unit behind the alias, when it has a control group, which is while it runs."""
    path, names = _UNITS + DISPLAY_MANAGER, [DISPLAY_MANAGER]
    for _ in range(5):  # gdm3.service is a link to gdm.service
        target = roots.link_or_none(path)
        if target is None:
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))
        names.append(os.path.basename(path))
    active = [name for name in names if any(os.path.isdir(roots.path(tree + name)) for tree in _TREES)]
    return active[-1] if active else None


def _cuda_compat(roots: Roots) -> list[str]:
    """Compatibility libraries that the loader would take in place of the driver's own libcuda."""
    cache = roots.bytes_or_none("/etc/ld.so.cache") or b""
    cached = re.findall(rb"(/[^\0\n]*/compat/libcuda\.so\.1)\0", cache)
    found = {path.decode("utf-8", "replace") for path in cached}
    directories = [path.rstrip("/") for path in os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    found.update(f"{path}/libcuda.so.1" for path in directories if path.endswith("/compat"))
    return sorted(path for path in found if os.path.exists(roots.path(path)))
