"""Installed versions of Debian packages, from dpkg's own file: a tenth of the time of dpkg-query, and no process."""

from __future__ import annotations

import os
import re

from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

STATUS = "/var/lib/dpkg/status"
# what a driver, its libraries or a toolkit is packaged as
_NVIDIA = ("nvidia", "libnvidia", "cuda-drivers", "cuda-compat", "cuda-toolkit")
_HELD = "\nStatus: hold "


def read(roots: Roots, names: list[str]) -> dict[str, Any]:
    """{"packages": {name: version or None} of those asked for, "holds", "nvidia_packages"}.

    Raises OSError when packages are asked for on a box that has no dpkg.
    """
    versions: dict[str, Any] = dict.fromkeys(names)
    holds, nvidia = [], {}
    if names or os.path.exists(roots.path(STATUS)):
        for name, held, version in installed(roots, lambda name: name in versions or name.startswith(_NVIDIA)):
            if name in versions:
                versions[name] = version
            if held:
                holds.append(name)
            if name.startswith(_NVIDIA):
                nvidia[name] = {"version": version, "origin": None, "candidate": None}
    return {"packages": versions, "holds": sorted(holds), "nvidia_packages": nvidia}


def nvidia_names(roots: Roots) -> list[str]:
    """Those installed; none on a box that has no dpkg."""
    if not os.path.exists(roots.path(STATUS)):
        return []
    found = installed(roots, lambda name: name.startswith(_NVIDIA))
    return sorted(name for name, _, _ in found if name.startswith(_NVIDIA))


def installed(roots: Roots, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bool, str]]:
    """(name, whether it is held, version) of the packages for this architecture that are wanted or held."""
    for paragraph in roots.text(STATUS).split("\n\n"):
        name = paragraph[len("Package: ") :].split("\n", 1)[0]
        if not (wanted(name) or _HELD in paragraph):
            continue
        fields = dict(re.findall(r"^(Status|Version|Architecture): (.*)$", paragraph, re.MULTILINE))
        here = fields.get("Architecture") in ("all", _ARCHITECTURE)
        if here and fields.get("Status", "").endswith(" installed"):
            yield name, _HELD in paragraph, fields["Version"]


_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
