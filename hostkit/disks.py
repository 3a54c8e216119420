"""Room on the file systems that a deploy fills."""

from __future__ import annotations

import contextlib
import os
import re

from hostkit import places
from hostkit.guard import Tell
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

MIB = 1024 * 1024
MODELS = "/opt/gpufleet/models"  # may be a disk of its own
# where the product keeps all it installs, first: nothing can be decided without it
PATHS = ("/opt/gpufleet", "/", "/var", MODELS)


def read(roots: Roots, tell: Tell, wanted: Iterable[str] = ()) -> dict[str, Any]:
    """{"disks": {path: {"free_mib", "total_mib", "filesystem", "mount"}}}, each of the path or its nearest parent that
    exists; of the models' also "coming_mib", what is there of models that are not in place yet. "models_home" and
    "places": see hostkit.places.

    Apart from the rest, and told one by one: a network file system that is gone hangs whoever asks for its size.
    + wanted: further folders, where models may be wanted; their disks are in "disks" when they exist
    """
    there = mounts(roots)
    found: dict[str, Any] = {"disks": {}, "models_home": None, "places": {}}
    for path in PATHS:
        tell.doing(path)
        found["disks"][path] = _disk(roots, there, path)
        if path == MODELS:
            found["disks"][path]["coming_mib"] = _coming(roots.path(MODELS + "/.store")) // MIB
            found["models_home"] = places.home(roots)
        tell.known(found)
    for path in wanted:
        tell.doing(path)
        found["places"][path] = places.place(roots, path, there)
        if found["places"][path]["exists"]:
            coming = _coming(roots.path(path + "/.store"), linked=found["models_home"]["link"] != path)
            found["disks"][path] = {**_disk(roots, there, path), "coming_mib": coming // MIB}
        tell.known(found)
    return found


def _disk(roots: Roots, points: dict[str, str], path: str) -> dict[str, Any]:
    there = path
    while not os.path.exists(roots.path(there)):
        there = os.path.dirname(there)
    disk = os.statvfs(roots.path(there))
    mount = _mount(points, os.path.realpath(there) if roots.base == "/" else there)
    return {
        "free_mib": disk.f_bavail * disk.f_frsize // MIB,
        "total_mib": disk.f_blocks * disk.f_frsize // MIB,
        "filesystem": points.get(mount),
        "mount": mount,
    }


def mounts(roots: Roots) -> dict[str, str]:
    """{mount point: type of its file system}; of two at one point the later one is seen."""
    text = roots.text_or_none("/proc/self/mountinfo") or ""
    found = re.findall(r"^\d+ \d+ \S+ \S+ (\S+) .*? - (\S+) ", text, re.MULTILINE)
    return {places.unescaped(point): kind for point, kind in found}


def _mount(points: dict[str, str], path: str) -> str:
    while path != "/" and path not in points:
        path = os.path.dirname(path)
    return path


def _coming(store: str, linked: bool = False) -> int:
    """Bytes in the models' store that no model has: of a deploy that was cut off, and the next goes on with them.

    + linked: also those that models have, where none of these is on the box yet
    """
    total = 0
    for folder in _folders(store):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):  # gone since it was listed
                known = os.lstat(os.path.join(folder, name))
                total += known.st_size if linked or known.st_nlink == 1 else 0
    return total


def _folders(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory)]
    except (FileNotFoundError, NotADirectoryError):
        return []
