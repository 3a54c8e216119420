"""Fetches wheels for the boxes (not for this machine's Python) through this machine's own pip and its configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.base import PYTHON
from lab.errors import LabError

GLIBC = 36  # bookworm's, the newest manylinux tag its pip takes
ABI = "cp" + PYTHON.replace(".", "")
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC, 4, -1)),
    "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64",
)  # fmt: skip


def download(requirements: Sequence[str], directory: Path, index: str | None = None) -> None:
    """Download each requirement (with its hashes) into a directory; those already there are kept."""
    if not requirements:
        return
    directory.mkdir(parents=True, exist_ok=True)
    wanted = directory / f".requirements-{os.getpid()}.txt"
    wanted.write_text("\n".join(requirements) + "\n")
    command = [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download",
        "--no-deps", "--only-binary=:all:", "--require-hashes",
        "--implementation", "cp", "--python-version", PYTHON, "--abi", ABI, "--abi", "abi3", "--abi", "none",
        *(f"--platform={platform}" for platform in PLATFORMS),
        "--dest", str(directory), "--requirement", str(wanted),
        *([f"--index-url={index}"] if index else []),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        wanted.unlink()
    if done.returncode != 0:
        said = "\n".join(line for line in done.stderr.splitlines() if "ERROR" in line) or done.stderr[-2000:]
        raise LabError(f"pip could not fetch what the boxes need:\n{said}", "See that `pip download` works here.")
