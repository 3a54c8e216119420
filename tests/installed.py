"""The product as an installed wheel lays it out, made from pyproject.toml without building one."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

from tests.command import REPOSITORY


def lay_out(site: Path) -> Path:
    """Fill a folder that stands for site-packages with what the wheel has, and nothing else of the repository."""
    wheel = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    places = {name: name for name in wheel["packages"]} | wheel["force-include"]
    for source, place in sorted(places.items(), key=lambda item: item[1].count("/")):
        target = site / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / source, target, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy(REPOSITORY / source, target)
    return site
