"""Room on the file systems that a deploy fills."""

from __future__ import annotations

import contextlib
import os
import re

from hostkit.guard import Tell
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MIB = 1024 * 1024
MODELS = "/opt/gpufleet/models"  # may be a disk of its own
# where the product keeps all it installs, first: nothing can be decided without it
PATHS = ("/opt/gpufleet", "/", "/var", MODELS)


def read(roots: Roots, tell: Tell) -> dict[str, Any]:
    """{"disks": {path: {"free_mib", "total_mib", "filesystem", "mount"}}}, each of the path or its nearest parent that
    exists; of the models' also "coming_mib", what is there of models that are not in place yet.

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
        mount = _mount(mounts, os.path.realpath(there) if roots.base == "/" else there)
        disks[path] = {
            "free_mib": disk.f_bavail * disk.f_frsize // MIB,
            "total_mib": disk.f_blocks * disk.f_frsize // MIB,
            "filesystem": mounts.get(mount),
            "mount": mount,
        }
        if path == MODELS:
            disks[path]["coming_mib"] = _coming(roots.path(MODELS + "/.store")) // MIB
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


def _mount(mounts: dict[str, str], path: str) -> str:
    while path != "/" and path not in mounts:
        path = os.path.dirname(path)
    return path


def _coming(store: str) -> int:
    """Bytes in the models' store that no model has: of a deploy that was cut off, and the next goes on with them."""
    total = 0
    for folder in _folders(store):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):  # gone since it was listed
                known = os.lstat(os.path.join(folder, name))
                total += known.st_size if known.st_nlink == 1 else 0
    return total


def _folders(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory)]
    except (FileNotFoundError, NotADirectoryError):
        return []
