"""Folders of the box that an owner wants models to lie in: whether they are there, mounted, open, and whose."""

from __future__ import annotations

import json
import os
import re
import stat

from hostkit import files
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

MODELS = os.path.join(files.ROOT, "models")
STORE = ".store"  # of the models' files, see hostkit.store: by it a folder is known to be ours
OF_FILE_SYSTEMS = ("lost+found",)


def record() -> str:
    """Where the folder that gpufleet linked is written down."""
    return os.path.join(files.STATE, "models-home.json")


def home(roots: Roots) -> dict[str, Any]:
    """Of /opt/gpufleet/models: {"link": where it leads as it is written, "empty": whether nothing lies in it, "ours":
    whether the link is one of gpufleet's}."""
    link = roots.link_or_none(MODELS)
    path = roots.path(MODELS)
    return {
        "link": link,
        # A link that leads nowhere may lead to a disk that is not mounted now.
        "empty": not holds(path) if os.path.isdir(path) else not os.path.lexists(path),
        "ours": link is not None and link == recorded(roots),
    }


def recorded(roots: Roots) -> Optional[str]:
    try:
        found = json.loads(roots.text_or_none(record()) or "{}").get("path")
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def place(roots: Roots, path: str, mounts: Mapping[str, str]) -> dict[str, Any]:
    """What is known of one folder.

    "exists"; "real": where it is when links are followed; "unmounted": the mount point of /etc/fstab above it that is
    not mounted; "closed": the first folder on the way that other users may not enter; "foreign": the first of what lies
    in it where it is not ours.
    + mounts: the mount points there are
    """
    at = roots.path(path)
    real = os.path.realpath(at) if roots.base == "/" else path
    there = os.path.isdir(at)
    return {
        "exists": there,
        "real": real,
        "unmounted": unmounted(roots, real, mounts),
        "closed": closed(roots, real) if there else None,
        "foreign": foreign(at) if there else None,
    }


def holds(folder: str) -> bool:
    """Whether anything but folders lies below it."""
    for at, folders, names in os.walk(folder):
        if names or any(os.path.islink(os.path.join(at, each)) for each in folders):
            return True
    return False


def foreign(folder: str) -> Optional[str]:
    names = [name for name in sorted(os.listdir(folder)) if name not in OF_FILE_SYSTEMS]
    return names[0] if names and STORE not in names else None


def closed(roots: Roots, path: str) -> Optional[str]:
    on_the_way = [path]
    while on_the_way[-1] != "/":
        on_the_way.append(os.path.dirname(on_the_way[-1]))
    for each in reversed(on_the_way):
        if not os.stat(roots.path(each)).st_mode & stat.S_IXOTH:
            return each
    return None


def unmounted(roots: Roots, path: str, mounts: Mapping[str, str]) -> Optional[str]:
    above = [point for point in fstab(roots) if path == point or path.startswith(point + "/")]
    nearest = max(above, key=len, default=None)
    return nearest if nearest not in mounts else None


def fstab(roots: Roots) -> list[str]:
    """Mount points of /etc/fstab but `/`; swap has none."""
    lines = (roots.text_or_none("/etc/fstab") or "").splitlines()
    words = [line.split() for line in lines if not line.lstrip().startswith("#")]
    points = [unescaped(each[1]).rstrip("/") for each in words if len(each) > 2]
    return [point for point in points if point.startswith("/")]


def unescaped(point: str) -> str:
    """A blank in a path is written \\040, in fstab as in mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), point)
