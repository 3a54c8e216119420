"""A small distribution of vLLM's shape: setuptools, setuptools-scm, CMake, ninja, kernels in CUDA; and a patch for it.

Its source archive is written here, its stack's page and lock are made of what the product ships.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

from gpufleet.catalogue import load
from gpufleet.paths import product_files, stack_folders
from gpufleet.schema import read
from gpufleet.stacks import Stack
from gpufleet.wheelhouse.lock import Pin, parse

NAME, VERSION = "tinykernels", "1.0"
ARCHIVE = f"{NAME}-{VERSION}.tar.gz"
KERNELS = 5
HOLD = "/run/hold-tinykernels"  # while it is there, the build stops before its last step
TOOLS = ("cmake", "ninja", "packaging", "setuptools", "setuptools-scm", "vcs-versioning", "wheel")
BUILD_LOCK = product_files() / "locks" / "vllm-0.27.1-build-py311.txt"

PROJECT = f"""\
[build-system]
requires = ["cmake", "ninja", "setuptools", "setuptools-scm", "wheel"]
build-backend = "setuptools.build_meta"

[project]
name = "{NAME}"
dynamic = ["version"]
"""
SETUP = """\
import os
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools_scm import get_version


class Cmake(build_ext):
    def build_extension(self, extension):
        made = Path(self.build_temp).absolute()
        made.mkdir(parents=True, exist_ok=True)
        archs = os.environ["TORCH_CUDA_ARCH_LIST"].replace(".", "")
        here = Path(__file__).parent.absolute()
        subprocess.check_call(["cmake", "-G", "Ninja", f"-DCMAKE_CUDA_ARCHITECTURES={archs}", str(here)], cwd=made)
        subprocess.check_call(["cmake", "--build", ".", "-j", os.environ["MAX_JOBS"]], cwd=made)
        self.copy_file(str(made / "libkernels.so"), self.get_ext_fullpath(extension.name))


setup(
    version=get_version(),
    packages=["tinykernels"],
    ext_modules=[Extension("tinykernels.kernels", [])],
    cmdclass={"build_ext": Cmake},
)
"""
CMAKE = f"""\
cmake_minimum_required(VERSION 3.26)
project(tinykernels LANGUAGES CXX CUDA)
file(GLOB SOURCES kernels/*.cu)
add_library(kernels SHARED ${{SOURCES}})
target_compile_options(kernels PRIVATE --no-compress)
add_custom_command(TARGET kernels PRE_LINK COMMAND sh -c "while test -e {HOLD}; do sleep 0.1; done" VERBATIM)
"""
KERNEL = """\
#include <cuda_fp16.h>
__global__ void add_@(__half* to, const __half* from, int many) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < many) to[at] = __hadd(to[at], __hmul(from[at], __float2half(@.0f)));
}
extern "C" int many_@() { return @; }
"""
PATCH = """\
--- a/kernels/kernel_3.cu
+++ b/kernels/kernel_3.cu
@@ -3,4 +3,4 @@
   int at = blockIdx.x * blockDim.x + threadIdx.x;
   if (at < many) to[at] = __hadd(to[at], __hmul(from[at], __float2half(3.0f)));
 }
-extern "C" int many_3() { return 3; }
+extern "C" int many_3() { return 33; }
--- /dev/null
+++ b/tinykernels/patched.py
@@ -0,0 +1 @@
+PATCHED = True
"""


def archive(path: Path) -> str:
    """Write the source archive, as a release has it, always the same; its sha256."""
    texts = {"pyproject.toml": PROJECT, "setup.py": SETUP, "CMakeLists.txt": CMAKE, "tinykernels/__init__.py": ""}
    texts |= {f"kernels/kernel_{number}.cu": KERNEL.replace("@", str(number)) for number in range(KERNELS)}
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, text in texts.items():
            info = tarfile.TarInfo(f"{NAME}-{VERSION}/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    path.write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tools() -> list[Pin]:
    """Of the tools that vLLM is built with, those that this needs: the same versions, the same files."""
    return [pin for pin in parse(BUILD_LOCK.read_text(), BUILD_LOCK.name) if pin.name in TOOLS]


def page(files: Path, sha256: str) -> Stack:
    """A stack that builds it, with its patch and lock below `files`."""
    for folder in ("locks", f"patches/{NAME}"):
        (files / folder).mkdir(parents=True)
    (files / "patches" / NAME / "series").write_text("0001-many.patch\n")
    (files / "patches" / NAME / "0001-many.patch").write_text(PATCH)
    lock = "".join(
        f"{pin.name}=={pin.version} \\\n    --hash=sha256:{pin.sha256}\n    # {pin.filename} {pin.size}\n"
        for pin in tools()
    )
    (files / "locks" / f"{NAME}-build-py311.txt").write_text(lock)
    uv = load(Stack, "stack", stack_folders())["vllm-0.27.1-cpu"].uv
    assert uv is not None
    build = {
        "name": NAME, "version": VERSION, "filename": ARCHIVE, "sha256": sha256, "patches": NAME,
        "lock": f"{NAME}-build", "env": {"MAX_JOBS": "1"},
    }  # fmt: skip
    data = {
        "schema": 1, "name": f"{NAME}-source", "title": NAME, "engine": "vllm", "python": ["3.11"], "arch": ["sm75"],
        "from_source": True, "build": build, "uv": uv.model_dump(), "lock": NAME,
    }  # fmt: skip
    return read(Stack, data, "a page").model_copy(update={"path": files / "stacks" / f"{NAME}-source.yaml"})


def architectures(library: bytes) -> set[int]:
    """Compute capabilities that a library holds machine code for, such as 75: ELF files of machine 190 (CUDA) in it.

    The number is in the lowest byte of their flags, or in the second one since CUDA 13's ABI.
    """
    found, at = set(), library.find(b"\x7fELF", 4)
    while at >= 0:
        head = library[at : at + 64]
        if int.from_bytes(head[18:20], "little") == 190:
            flags = int.from_bytes(head[48:52], "little")
            found |= {flags & 0xFF, flags >> 8 & 0xFF} & {70, 75, 80, 86, 89, 90}
        at = library.find(b"\x7fELF", at + 4)
    return found
