"""Where the controller keeps what it fetched."""

from __future__ import annotations

import os
from pathlib import Path


def root() -> Path:
    """`~/.cache/gpufleet`, or below XDG_CACHE_HOME where that is set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "gpufleet"


def wheels() -> Path:
    return root() / "wheels"


def commits() -> Path:
    """Commits of git repositories."""
    return root() / "store" / "git"
