"""What the box runs: distribution, kernel, C library, the Python that runs this, and whether it is a machine at all."""

from __future__ import annotations

import os
import re
import sys

from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SERVICE_USER = "gpufleet"
_PRODUCTS = {"KVM": "kvm", "QEMU": "qemu", "VMware": "vmware", "VirtualBox": "oracle", "Virtual Machine": "microsoft"}


def read(roots: Roots) -> dict[str, Any]:
    kernel = os.uname()
    release = _os_release(roots)
    return {
        "hostname": kernel.nodename,
        "machine_id": _machine_id(roots),
        "os": {
            "id": release.get("ID", "linux"),
            "version_id": release.get("VERSION_ID", ""),
            "codename": release.get("VERSION_CODENAME", ""),
            "arch": kernel.machine,
            "kernel": kernel.release,
            "glibc": _glibc(),
        },
        "python": {
            "version": "{}.{}.{}".format(*sys.version_info[:3]),
            "executable": sys.executable,
            "headers": os.path.isfile(roots.path(_include() + "/Python.h")),
        },
        "virtualization": _virtualization(roots, kernel.release),
        "user": {"exists": _has_user(roots)},
    }


def _include() -> str:
    """As sysconfig says it, which takes longer to import than all that is read here."""
    version = "python{}.{}{}".format(*sys.version_info[:2], getattr(sys, "abiflags", ""))
    return os.path.join(sys.base_prefix, "include", version)


def _os_release(roots: Roots) -> dict[str, str]:
    text = roots.text_or_none("/etc/os-release") or roots.text_or_none("/usr/lib/os-release") or ""
    return {key: value.strip("\"'") for key, value in re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE)}


def _machine_id(roots: Roots) -> str | None:
    text = (roots.text_or_none("/etc/machine-id") or "").strip()
    return text if re.fullmatch("[0-9a-f]{32}", text) else None


def _glibc() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").replace("glibc ", "")
    except (ValueError, OSError):
        return ""


def _virtualization(roots: Roots, kernel: str) -> str | None:
    container = roots.text_or_none("/run/systemd/container")
    if container:
        return container.strip()
    if os.path.exists(roots.path("/.dockerenv")):
        return "docker"
    if "microsoft" in kernel.lower():
        return "wsl"
    product = " ".join(roots.text_or_none("/sys/class/dmi/id/" + name) or "" for name in ("sys_vendor", "product_name"))
    for part, name in _PRODUCTS.items():
        if part in product:
            return name
    flags = re.search(r"^flags\s*:(.*)$", roots.text_or_none("/proc/cpuinfo") or "", re.MULTILINE)
    return "vm" if flags and "hypervisor" in flags.group(1).split() else None


def _has_user(roots: Roots) -> bool:
    return re.search("^" + SERVICE_USER + ":", roots.text_or_none("/etc/passwd") or "", re.MULTILINE) is not None
