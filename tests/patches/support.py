"""The patched engine: a tree of the genuine vLLM with its series applied, and checks that run inside it.

The environment has the genuine engine with torch's CPU build (tests/golden/environments.py), and no pytest: so a file
of `inside/` holds functions `check_…` of plain asserts, which the environment's own Python runs in one process. The
same checks are for every engine: what differs between two versions is said where it does.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
from pathlib import Path

from gpufleet.patches import read_series
from gpufleet.patching import apply
from tests.command import REPOSITORY
from tests.golden.environments import python_with

ENGINES = ("vllm-0.24.0", "vllm-0.27.1")
INSIDE = Path(__file__).parent / "inside"


def checks() -> list[tuple[str, str]]:
    """Every (file, function) of `inside/`, without running any."""
    found = []
    for file in sorted(INSIDE.glob("*_checks.py")):
        body = ast.parse(file.read_text()).body
        found += [
            (file.stem, it.name) for it in body if isinstance(it, ast.FunctionDef) and it.name.startswith("check_")
        ]
    return found


def patched_tree(engine: str, folder: Path) -> list[str]:
    """Make `folder/vllm`: links to the genuine files, and the patched ones; returns what the patches touch."""
    (genuine,) = python_with(engine).parent.parent.glob("lib/python3.*/site-packages/vllm")

    def read(path: str) -> bytes | None:
        file = genuine.parent / path
        return file.read_bytes() if file.exists() else None

    done = apply(read_series(REPOSITORY / "files" / "patches" / engine), read)
    assert done.moved == [], "a hunk is not where the patch says: make it anew"
    no_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(genuine, folder / "vllm", copy_function=os.symlink, ignore=no_caches)
    for path, content in done.files.items():
        file = folder / path
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
    return sorted(done.files)


def run(engine: str, tree: Path, *arguments: str) -> dict[str, str]:
    """Run a file of `inside/`: what went wrong (the traceback, or nothing) by function."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    env |= {"PYTHONPATH": str(tree), "VLLM_LOGGING_LEVEL": "ERROR", "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [str(python_with(engine)), str(INSIDE / "run.py"), *arguments],
        capture_output=True,
        text=True,
        cwd=tree,
        env=env,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return results
