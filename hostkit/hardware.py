"""Processor, memory and room on disk."""

from __future__ import annotations

import os
import re
from typing import Any

from hostkit.roots import Roots

MIB = 1024 * 1024
KEPT_ON_DISK = "/opt/gpufleet"
# what CPU kernels of the engines are chosen by
_FLAGS = {
    "sse4_2",
    "fma",
    "f16c",
    "avx",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "bf16",
    "i8mm",
    "sve",
}


def read(roots: Roots) -> dict[str, Any]:
    return {"cpu": _cpu(roots), "memory": _memory(roots), "shm_mib": _shm_mib(roots)}


def read_disks(roots: Roots) -> dict[str, Any]:
    """Apart from the rest: a network file system that is gone hangs whoever asks for its size."""
    path = roots.path(KEPT_ON_DISK)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    disk = os.statvfs(path)
    sizes = {"free_mib": disk.f_bavail * disk.f_frsize // MIB, "total_mib": disk.f_blocks * disk.f_frsize // MIB}
    return {"disks": {KEPT_ON_DISK: sizes}}


def _cpu(roots: Roots) -> dict[str, Any]:
    text = roots.text("/proc/cpuinfo")
    field = re.compile(r"^([^\t:]+?)\s*:[ \t]*(.*)$", re.MULTILINE)
    processors = [dict(field.findall(block)) for block in text.strip().split("\n\n")]
    processors = [each for each in processors if "processor" in each]
    cores = {(each.get("physical id", "0"), each.get("core id", each["processor"])) for each in processors}
    first = processors[0]
    flags = (first.get("flags") or first.get("Features") or "").split()
    return {
        "model": first.get("model name", ""),
        "cores": len(cores),
        "threads": len(processors),
        "flags": sorted(_FLAGS.intersection(flags)),
    }


def _memory(roots: Roots) -> dict[str, int]:
    lines = re.findall(r"^(\w+):\s+(\d+)", roots.text("/proc/meminfo"), re.MULTILINE)
    kib = {name: int(value) for name, value in lines}
    return {
        "total_mib": kib["MemTotal"] // 1024,
        "available_mib": kib["MemAvailable"] // 1024,
        "swap_mib": kib.get("SwapTotal", 0) // 1024,
    }


def _shm_mib(roots: Roots) -> int:
    try:
        shm = os.statvfs(roots.path("/dev/shm"))
    except FileNotFoundError:
        return 0
    return shm.f_blocks * shm.f_frsize // MIB
