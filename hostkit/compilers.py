"""Versions of the compilers that engines build kernels with at first use."""

from __future__ import annotations

import re

from hostkit.guard import Tell
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES = ("gcc", "g++")


def read(roots: Roots, tell: Tell) -> dict[str, Any]:
    """{"compilers": {"gcc": "12.2.0", "g++": None}, "errors": [...]}; None is: not installed, or it does not run."""
    versions: dict[str, Any] = dict.fromkeys(NAMES)
    errors = []
    for name in NAMES:
        tell.doing(name)
        try:
            version = re.search(r"\d+(\.\d+)*", roots.output(name, "-dumpfullversion", "-dumpversion") or "")
        except OSError as error:
            errors.append(str(error))
            continue
        versions[name] = version.group(0) if version else None
    return {"compilers": versions, "errors": errors}
