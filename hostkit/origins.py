"""Where NVIDIA's packages came from and what apt would install next: one call of apt-cache, none without packages."""

from __future__ import annotations

import re

from hostkit import packages
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NONE = "(none)"
# `100 /var/lib/dpkg/status` is no source: the package is there, that is all
_LOCAL = "/"


def read(roots: Roots) -> dict[str, Any]:
    """{"origins": {name: {"origin", "candidate"}}}; empty without apt."""
    names = packages.nvidia_names(roots)
    printed = _policy(roots, names) if names else None
    return {"origins": {name: policy for name, policy in _policies(printed or "").items() if name in names}}


def _policy(roots: Roots, names: list[str]) -> str | None:
    try:
        return roots.output("apt-cache", "policy", *names)
    except OSError:  # apt-cache fails when the disk has no room for its index; in memory it is made anew each time
        in_memory = ("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")
        return roots.output("apt-cache", *in_memory, "policy", *names)


def _policies(printed: str) -> dict[str, dict[str, Any]]:
    """By package: `origin` is the first source of the installed version, its address and suite."""
    found: dict[str, dict[str, Any]] = {}
    policy: dict[str, Any] = {}
    installed = False  # whether the sources now listed are those of the installed version
    for line in printed.splitlines():
        if re.match(r"\S+:$", line):
            policy = found[line[:-1].split(":")[0]] = {"origin": None, "candidate": None}
            installed = False
            continue
        candidate = re.match(r"  Candidate: (.+)$", line)
        version = re.match(r" (\*\*\*|   ) \S", line)
        source = re.match(r" {6,}-?\d+ (\S+)(?: (\S+))?", line)
        if candidate:
            policy["candidate"] = None if candidate.group(1) == _NONE else candidate.group(1)
        elif version:
            installed = version.group(1) == "***"
        elif source and installed and policy["origin"] is None and not source.group(1).startswith(_LOCAL):
            policy["origin"] = " ".join(part for part in source.groups() if part)
    return found
