"""The scripts that compile ahead, each beside a package in the shape of its own: what it makes, and where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.command import REPOSITORY

SM_LEGACY = """\
import os, pathlib
def prebuild():
    arch = "sm" + os.environ["TORCH_CUDA_ARCH_LIST"].replace(".", "")
    place = pathlib.Path(os.environ.get("ELSEWHERE") or pathlib.Path(__file__).parent / "prebuilt") / arch / "gdn.so"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(arch)
    return place
"""
# As flashinfer.jit.attention: a spec with a name made of its types, built below FLASHINFER_WORKSPACE_BASE.
ATTENTION = """\
import os, pathlib
class Spec:
    def __init__(self, backend, q, kv, o, index, qk, vo, posenc, window, cap, f16):
        assert (backend, q, o, index, posenc, window, cap, f16) == ("fa2", "f16", "f16", "i32", 0, False, False, False)
        self.name = f"prefill_kv_{kv}_{qk}_{vo}"
        self.build_dir = pathlib.Path(os.environ["FLASHINFER_WORKSPACE_BASE"]) / self.name
        self.jit_library_path = self.build_dir / f"{self.name}.so"
    def build(self):
        self.build_dir.mkdir()
        self.jit_library_path.write_text(os.environ["FLASHINFER_CUDA_ARCH_LIST"])
gen_batch_prefill_module = Spec
"""


def script(name: str, packages: Path, into: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script as hostkit.compile does, with these packages."""
    text = (REPOSITORY / "files/compile" / name).read_text()
    given = {"PYTHONPATH": str(packages), "GPUFLEET_INTO": str(into), "PATH": os.environ["PATH"], **env}
    return subprocess.run([sys.executable, "-c", text], env=given, capture_output=True, text=True, check=False)


def package(root: Path, path: str, text: str) -> None:
    """A module, its packages, and nothing else."""
    target = root / path
    target.parent.mkdir(parents=True)
    target.write_text(text)
    for folder in list(target.parents)[: len(Path(path).parts) - 1]:
        (folder / "__init__.py").touch()


def test_flashqla_is_compiled_where_the_patched_package_looks_for_it(tmp_path: Path) -> None:
    package(tmp_path, "flash_qla/ops/gated_delta_rule/legacy/sm_legacy.py", SM_LEGACY)
    into = tmp_path / "flash_qla/ops/gated_delta_rule/legacy/prebuilt"
    done = script("flashqla.py", tmp_path, into, TORCH_CUDA_ARCH_LIST="7.5")
    assert done.returncode == 0, done.stderr
    assert (into / "sm75/gdn.so").read_text() == "sm75"
    assert done.stdout == "gpufleet: FlashQLA: sm75/gdn.so, 0 KiB\n"


def test_flashqla_that_writes_elsewhere_is_an_error(tmp_path: Path) -> None:
    package(tmp_path, "flash_qla/ops/gated_delta_rule/legacy/sm_legacy.py", SM_LEGACY)
    elsewhere = str(tmp_path / "elsewhere")
    done = script("flashqla.py", tmp_path, tmp_path / "into", TORCH_CUDA_ARCH_LIST="7.5", ELSEWHERE=elsewhere)
    assert done.returncode == 1 and "correct `into`" in done.stderr


def test_flashinfer_kernels_lie_where_they_are_taken_without_a_compiler(tmp_path: Path) -> None:
    package(tmp_path, "flashinfer/jit/attention.py", ATTENTION)
    (tmp_path / "torch.py").write_text("float8_e4m3fn, float16, int32 = 'torch.e4m3', 'f16', 'i32'\n")
    # their names are printed without `torch.`
    (tmp_path / "torch.py").write_text(
        "class D(str):\n    __str__ = lambda self: 'torch.' + str.__str__(self)\n"
        "float8_e4m3fn, float16, int32 = D('e4m3'), D('f16'), D('i32')\n"
    )
    into, workspace = tmp_path / "aot", tmp_path / "workspace"
    into.mkdir(), workspace.mkdir()
    env = {"FLASHINFER_WORKSPACE_BASE": str(workspace), "FLASHINFER_CUDA_ARCH_LIST": "7.5 8.6"}
    done = script("flashinfer_attention.py", tmp_path, into, **env)
    assert done.returncode == 0, done.stderr
    made = sorted(str(path.relative_to(into)) for path in into.rglob("*.so"))
    assert len(made) == 2
    assert all(Path(name).parts[0] == Path(name).stem for name in made)
    assert (into / made[0]).read_text() == "7.5 8.6"
    assert done.stdout.count("gpufleet: FlashInfer: head 256, KV ") == 2
    # for a second architecture of the box there is nothing left to do
    again = script("flashinfer_attention.py", tmp_path, into, **env)
    assert (again.returncode, again.stdout) == (0, "")
