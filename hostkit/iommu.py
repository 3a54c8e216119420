"""Whether the bus sends what one card writes to another the long way round: IOMMU translation and ACS redirection.

Either makes peer-to-peer over PCIe slow, or lets it be advertised and then hang. Source: NCCL's troubleshooting guide.
"""

from __future__ import annotations

import os
import struct

from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEVICES = "/sys/bus/pci/devices"
GROUPS = "/sys/kernel/iommu_groups"
NVIDIA, DISPLAY, BRIDGE = "0x10de", "0x03", "0x0604"
_NO_TRANSLATION = {"iommu=pt", "iommu=off", "intel_iommu=off", "amd_iommu=off", "iommu.passthrough=1"}
# PCI Express Base Specification, 7.6.3 (extended capabilities) and 7.7.11 (ACS): offsets and bits
_FIRST, _LAST, _ACS, _CONTROL = 0x100, 0x1000, 0x000D, 6
_REQUEST_REDIRECT, _COMPLETION_REDIRECT = 1 << 2, 1 << 3
# what anybody may read of a device, and what a device without extended capabilities has
_UNPRIVILEGED, _CONVENTIONAL = 64, 256


def read(roots: Roots) -> dict[str, Any]:
    acs = _redirecting(roots)
    refused = acs is None and roots.real and os.geteuid() != 0
    return {
        "iommu": {
            "enabled": bool(roots.names("/sys/class/iommu")),
            "passthrough": _passthrough(roots),
            "acs": acs,
        },
        "errors": ["only root may read the configuration of PCI bridges (ACS)"] if refused else [],
    }


def _passthrough(roots: Roots) -> bool | None:
    """The word of the cards' own groups, else what the kernel was told at boot; None when neither says."""
    types = {_group_type(roots, device) for device in _devices(roots, DISPLAY, NVIDIA)} - {None}
    if types:
        return types == {"identity"}
    words = (roots.text_or_none("/proc/cmdline") or "").split()
    return True if _NO_TRANSLATION.intersection(words) else None


def _group_type(roots: Roots, device: str) -> str | None:
    group = roots.link_or_none(f"{DEVICES}/{device}/iommu_group")
    return (roots.text_or_none(f"{GROUPS}/{os.path.basename(group)}/type") or "").strip() or None if group else None


def _devices(roots: Roots, kind: str, vendor: str = "") -> list[str]:
    """The bus ids of the devices of a class."""
    return [
        name
        for name in roots.names(DEVICES)
        if (roots.text_or_none(f"{DEVICES}/{name}/class") or "").startswith(kind)
        and (roots.text_or_none(f"{DEVICES}/{name}/vendor") or "").startswith(vendor)
    ]


def _redirecting(roots: Roots) -> list[str] | None:
    """The bridges that send requests or completions up to the root; None when it cannot be told."""
    if not roots.names(DEVICES):
        return None
    controls = {bridge: _acs_control(roots, bridge) for bridge in _devices(roots, BRIDGE)}
    if any(control is None for control in controls.values()):
        return None
    redirect = _REQUEST_REDIRECT | _COMPLETION_REDIRECT
    return [bridge for bridge, control in controls.items() if control and control & redirect]


def _acs_control(roots: Roots, device: str) -> int | None:
    """The ACS control register, 0 without the capability; None when the extended configuration may not be read."""
    try:
        descriptor = os.open(roots.path(f"{DEVICES}/{device}/config"), os.O_RDONLY)
    except OSError:
        return None
    try:
        if len(os.pread(descriptor, _CONVENTIONAL, 0)) <= _UNPRIVILEGED:
            return None
        offset, seen = _FIRST, set()
        # by single registers: each costs a cycle on the bus, and a list that runs in a circle must end
        while _FIRST <= offset < _LAST and offset not in seen:
            seen.add(offset)
            header = _register(descriptor, offset)
            if header in (0, 0xFFFFFFFF):
                break
            if header & 0xFFFF == _ACS:
                return _register(descriptor, offset + _CONTROL - 2) >> 16
            offset = header >> 20
        return 0
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _register(descriptor: int, offset: int) -> int:
    """32 bits at an offset; 0 beyond the end."""
    data = os.pread(descriptor, 4, offset)
    return int(struct.unpack("<I", data)[0]) if len(data) == 4 else 0
