"""The patches of FlashQLA on its genuine source, compiled for compute capability 7.5. There is no card to run it.

Its source is not part of the project: GPUFLEET_FLASHQLA_SOURCE names a checkout of the commit in the series' name, and
GPUFLEET_FLASHQLA_PYTHON a Python with torch's CUDA build, tilelang and ninja. nvcc is the one that torch finds, by
CUDA_HOME or on the PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpufleet.patches import read_series
from gpufleet.patching import apply
from tests.command import REPOSITORY

pytestmark = pytest.mark.large

LEGACY = "flash_qla/ops/gated_delta_rule/legacy"
PREBUILD = "from flash_qla.ops.gated_delta_rule.legacy.sm_legacy import prebuild; print(prebuild())"
# What a process with one card of compute capability 7.5 does at its first prefill.
FIRST_USE = """
import torch
torch.cuda.is_available = lambda: True
torch.cuda.get_device_capability = lambda *_: (7, 5)
from flash_qla.ops.gated_delta_rule.legacy.sm_legacy import _load_ext
print(_load_ext().gdn_forward.__name__)
"""


def named(variable: str) -> Path:
    if variable not in os.environ:
        pytest.fail(f"{variable} is not set; what it names is said at the top of {__file__}")
    return Path(os.environ[variable])


def python(tree: Path, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program with nothing set but these variables."""
    command = [str(named("GPUFLEET_FLASHQLA_PYTHON")), "-c", program]
    env = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, folder = named("GPUFLEET_FLASHQLA_SOURCE"), tmp_path_factory.mktemp("flash-qla")
    done = apply(read_series(REPOSITORY / "files/patches/flash-qla-3ab27d7"), lambda path: (source / path).read_bytes())
    assert done.moved == [], "a hunk is not where the patch says: make it anew"
    shutil.copytree(source / "flash_qla", folder / "flash_qla", ignore=shutil.ignore_patterns("__pycache__"))
    for path, content in done.files.items():
        assert content is not None
        (folder / path).write_bytes(content)
    return folder


@pytest.fixture(scope="session")
def prebuilt(tree: Path) -> Path:
    """The extension as prebuild() makes it, with the headers of the libraries that torch came with."""
    home = named("GPUFLEET_FLASHQLA_PYTHON").parent
    headers = [str(it) for it in home.parent.glob("lib/python3.*/site-packages/nvidia/cu*/include")]
    passed = {name: os.environ[name] for name in ("CUDA_HOME",) if name in os.environ}
    path = f"{home}:{os.environ['PATH']}"
    done = python(tree, PREBUILD, TORCH_CUDA_ARCH_LIST="7.5", PATH=path, CPATH=":".join(headers), **passed)
    assert done.returncode == 0, done.stderr[-5000:]
    return Path(done.stdout.splitlines()[-1])


def test_imported_without_a_card(tree: Path) -> None:
    done = python(tree, "import flash_qla; print(flash_qla.chunk_gated_delta_rule)")
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr


def test_no_architecture_is_an_error(tree: Path) -> None:
    done = python(tree, PREBUILD)
    assert done.returncode == 1 and "TORCH_CUDA_ARCH_LIST is not set: set it to" in done.stderr, done.stderr


def test_compiled_for_the_card_alone(tree: Path, prebuilt: Path) -> None:
    assert prebuilt == tree / LEGACY / "prebuilt/sm75/flash_qla_legacy_gdn.so"
    assert list(prebuilt.parent.iterdir()) == [prebuilt]
    assert set(re.findall(rb"-arch (sm_\w+)", prebuilt.read_bytes())) == {b"sm_75"}


def test_loaded_with_no_compiler(tree: Path, prebuilt: Path) -> None:
    done = python(tree, FIRST_USE, PATH="/nonexistent")
    assert (done.returncode, done.stdout) == (0, "gdn_forward\n"), done.stderr
    assert f"FlashQLA legacy: loading {prebuilt}.\n" in done.stderr
