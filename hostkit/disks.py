"""Room on the file systems that a deploy fills."""

from __future__ import annotations

import os
import re
from typing import Any

from hostkit.guard import Tell
from hostkit.roots import Roots

MIB = 1024 * 1024
# where the product keeps all it installs, first: nothing can be decided without it
PATHS = ("/opt/gpufleet", "/", "/var")


def read(roots: Roots, tell: Tell) -> dict[str, Any]:
    """{"disks": {path: {"free_mib", "total_mib", "filesystem"}}}, each of the path or its nearest parent that exists.

    Apart from the rest, and told one by one: a network file system that is gone hangs whoever asks for its size.
    """
    mounts = _mounts(roots)
    disks: dict[str, Any] = {}
    for path in PATHS:
        tell.doing(path)
        there = path
        while not os.path.exists(roots.path(there)):
            there = os.path.dirname(there)
        disk = os.statvfs(roots.path(there))
        disks[path] = {
            "free_mib": disk.f_bavail * disk.f_frsize // MIB,
            "total_mib": disk.f_blocks * disk.f_frsize // MIB,
            "filesystem": _filesystem(mounts, os.path.realpath(there) if roots.base == "/" else there),
        }
        tell.known({"disks": disks})
    return {"disks": disks}


def _mounts(roots: Roots) -> dict[str, str]:
    """{mount point: type of its file system}; of two at one point the later one is seen."""
    text = roots.text_or_none("/proc/self/mountinfo") or ""
    found = re.findall(r"^\d+ \d+ \S+ \S+ (\S+) .*? - (\S+) ", text, re.MULTILINE)
    return {_unescaped(point): kind for point, kind in found}


def _unescaped(point: str) -> str:
    """A blank in a path is written \\040."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), point)


def _filesystem(mounts: dict[str, str], path: str) -> str | None:
    while path != "/" and path not in mounts:
        path = os.path.dirname(path)
    return mounts.get(path)
