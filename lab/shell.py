"""Runs a command of the controller; a failure shows what the command said."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.errors import LabError


def run(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, stdin: str | None = None) -> str:
    """Run it to its end and return its output; raise LabError with the tail of what it wrote otherwise."""
    arguments = [str(part) for part in command]
    try:
        done = subprocess.run(arguments, env=env, input=stdin, text=True, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise LabError(f"{arguments[0]} is not installed", "Run `python -m lab build`, which installs it.") from error
    if done.returncode != 0:
        said = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-15:])
        raise LabError(f"`{' '.join(arguments[:6])}` failed ({done.returncode}):\n{said}")
    return done.stdout


def succeeds(command: Sequence[str | Path]) -> bool:
    return subprocess.run([str(part) for part in command], capture_output=True, check=False).returncode == 0
