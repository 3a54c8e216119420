"""Environments in which an engine's own command line can be parsed, made once by tools/parser-env.

They are kept in the folder that GPUFLEET_PARSER_ENVS names, by the engine's name, else under ~/.cache/gpufleet.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.command import REPOSITORY

NAMESPACE = Path(__file__).parent / "namespace.py"


def python_with(engine: str) -> Path:
    """The python that has the genuine engine (`vllm-0.27.1`); making its environment takes minutes and about 4 GB."""
    home = Path(os.environ.get("GPUFLEET_PARSER_ENVS", str(Path.home() / ".cache/gpufleet/parser-envs")))
    folder = home / engine
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(REPOSITORY / "tools/parser-env"), engine, str(folder)], check=True)
    return folder / "bin" / "python"


def namespaces(engine: str, files: Sequence[Path], *options: str) -> list[dict[str, Any]]:
    """What that vLLM makes of each configuration: see namespace.py, whose options may be given."""
    done = _parse(engine, *options, *map(str, files))
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()[-len(files) :]]


def refusal(engine: str, file: Path) -> str:
    """What that vLLM says of a configuration that it refuses."""
    done = _parse(engine, str(file))
    assert done.returncode != 0, f"{engine} takes {file.read_text()}"
    return done.stderr


def _parse(engine: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(python_with(engine)), str(NAMESPACE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"})
