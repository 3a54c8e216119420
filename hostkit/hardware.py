"""Processor and memory."""

from __future__ import annotations

import os
import re

from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MIB = 1024 * 1024
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
_CORES = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"


def read(roots: Roots) -> dict[str, Any]:
    return {"cpu": _cpu(roots), "memory": _memory(roots), **_shm(roots)}


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
        "numa_nodes": max(1, sum(bool(re.fullmatch(r"node\d+", name)) for name in roots.names(_NODES))),
        "governor": governor(roots),
    }


def governor(roots: Roots) -> str | None:
    """None in most virtual machines; several when the cores differ."""
    texts = (roots.text_or_none(path) or "" for path in governor_files(roots))
    return ", ".join(sorted({text.strip() for text in texts if text.strip()})) or None


def governor_files(roots: Roots) -> list[str]:
    """Of each core that has one, by absolute path."""
    cores = (name for name in roots.names(_CORES) if re.fullmatch(r"cpu\d+", name))
    paths = (f"{_CORES}/{core}/cpufreq/scaling_governor" for core in cores)
    return [path for path in paths if os.path.exists(roots.path(path))]


def _memory(roots: Roots) -> dict[str, int]:
    lines = re.findall(r"^(\w+):\s+(\d+)", roots.text("/proc/meminfo"), re.MULTILINE)
    kib = {name: int(value) for name, value in lines}
    return {
        "total_mib": kib["MemTotal"] // 1024,
        "available_mib": kib["MemAvailable"] // 1024,
        "swap_mib": kib.get("SwapTotal", 0) // 1024,
    }


def _shm(roots: Roots) -> dict[str, int]:
    """Size and room of /dev/shm; 0 when there is none."""
    try:
        shm = os.statvfs(roots.path("/dev/shm"))
    except FileNotFoundError:
        return {"shm_mib": 0, "shm_free_mib": 0}
    return {"shm_mib": shm.f_blocks * shm.f_frsize // MIB, "shm_free_mib": shm.f_bavail * shm.f_frsize // MIB}
