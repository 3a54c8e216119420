"""CUDA toolkits: directories with a compiler in them, side by side, whatever /usr/local/cuda points to."""

from __future__ import annotations

import os
import re

from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PARENT = "/usr/local"


def read(roots: Roots) -> dict[str, Any]:
    found = {}
    for name in roots.names(PARENT):
        version = re.fullmatch(r"cuda-(\d+\.\d+)", name)
        directory = f"{PARENT}/{name}"
        if version and os.access(roots.path(directory + "/bin/nvcc"), os.X_OK):
            found[version.group(1)] = directory
    return {"toolkits": found}
