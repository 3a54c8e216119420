"""Running the product as a user does: pyinfra's own command in an owner's folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpufleet.cli import main

REPOSITORY = Path(__file__).resolve().parent.parent
PYINFRA = [sys.executable, "-c", "from pyinfra_cli.main import main; main()"]
GPUFLEET = [sys.executable, "-c", "from gpufleet.cli import main; main()"]


def owners_folder(folder: Path, inventory: str, **pages: str) -> Path:
    """A folder with deploy.py and config.py as the repository has them, and the given pages (`group_data__all`)."""
    for name in ("deploy.py", "config.py"):
        shutil.copy(REPOSITORY / name, folder / name)
    for name, text in {"inventory__home": inventory, **pages}.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def run(
    folder: Path, *arguments: str, program: list[str] = PYINFRA, timeout: float = 900, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal; both streams are in `stdout`."""
    return subprocess.run(
        [*program, *arguments],
        cwd=folder,
        env={**os.environ, "PYINFRA_PROGRESS": "off", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )


def deploy(
    folder: Path, *options: str, inventory: str = "inventory/home.py", **env: str
) -> subprocess.CompletedProcess[str]:
    """`pyinfra OPTIONS INVENTORY deploy.py`."""
    return run(folder, *options, inventory, "deploy.py", **env)


def in_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: str, *arguments: str) -> tuple[int | str | None, str]:
    """(exit code, what was said) of `gpufleet ARGUMENTS` in this process, with this typed at its question."""
    with CliRunner().isolation(answer) as streams:
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return ended.value.code, streams[0].getvalue().decode()
