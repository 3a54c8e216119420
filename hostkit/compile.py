"""Compiling ahead what an engine would otherwise compile at its first request, and passing it on to like boxes.

A step is a script of the stack. It runs in the new runtime, for each architecture of the box, and fills a folder of the
runtime's packages. The compiler is that of the toolkit the runtime is named with, never what /usr/local/cuda leads to.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Optional

from hostkit import archive, events, files, install, parallel, space, steps, store, toolkits
from hostkit.errors import Failure

# What is set aside for each compiler, in MiB. Measured: 0.5 GiB for one of FlashInfer 0.6.16's attention kernels, for
# 7.5 with CUDA 13.0; newer architectures take more.
MIB_PER_JOB = 2048


def passed_on(spec: dict) -> Optional[dict]:
    """What a like box compiled, when its archive is whole in this box's store and may be used here; else None."""
    known = spec.get("compiled")
    return dict(known) if spec["compile"] and known and usable(known) else None


def run(spec: dict, tree: str, scratch: str, known: Optional[dict] = None) -> Optional[dict]:
    """Fill the folders of the spec's `compile` steps; None when it has none.

    + known: what `passed_on` answered; it is unpacked then, with the byte code where that is in it
    Returns {"filename", "sha256", "size", "glibc", "byte_code"} of an archive in the box's store, of those folders and
    of the packages' byte code. Raises Failure naming the step.
    """
    wanted = spec["compile"]
    if not wanted:
        return None
    packages = install.site_packages(tree, spec["python"])
    folders = [step["into"] for step in wanted]
    if known:
        events.log("unpacking what another box compiled ({})".format(known["filename"]))
        path = store.path(known["filename"], known["sha256"])
        archive.unpack(path, packages, folders)
        return {**known, "size": os.path.getsize(path)}
    toolkit = cuda_home(spec["toolkit"])
    before = {name: stamp(packages, name) for name in found(packages, folders)}
    for step in wanted:
        one(spec, step, toolkit, tree, packages, scratch)
    made = [name for name in found(packages, folders) if before.get(name) != stamp(packages, name)]
    for folder in folders:
        install.make_readable(os.path.join(packages, folder))
    with space.told_when_full(store.ROOT, spec["name"]):  # which may be a link to another disk
        return keep(spec["name"], packages, made + byte_code(packages))


def one(spec: dict, step: dict, toolkit: str, tree: str, packages: str, scratch: str) -> None:
    """Run one step for each architecture, in a scratch folder of its own."""
    into = os.path.join(packages, step["into"])
    os.makedirs(into, exist_ok=True)
    before = {name: stamp(packages, name) for name in found(packages, [step["into"]])}
    jobs = parallel.here(MIB_PER_JOB)
    for arch in spec["archs"]:
        place = os.path.join(scratch, "{}-{}".format(step["name"], arch))
        os.makedirs(os.path.join(place, "tmp"))
        events.log("compiling {} for {}, {} at once".format(step["name"], arch, jobs))
        began = time.monotonic()
        env = environment(tree, toolkit, place, into, arch, spec["archs"], jobs)
        python = os.path.join(tree, "bin", "python")
        steps.run(
            "compiling {} for {}".format(step["name"], arch),
            [python, "-c", step["script"]],
            env,
            packages,
            "look at the last lines; the compiler is {}/bin/nvcc with g++. When it was ended, the box has too little "
            "memory: free some, then deploy again".format(toolkit),
            everywhere=True,
        )
        events.log("compiled {} for {} in {:.0f} s".format(step["name"], arch, time.monotonic() - began))
        odd = not_plain(packages, step["into"])
        if odd:
            raise Failure(
                "compiling {} left {}, where only plain files can be".format(step["name"], odd),
                "have the script {} of the stack copy there what that leads to: like boxes get files, and the folder "
                "it compiles in is gone when it is done".format(step["name"]),
                everywhere=True,
            )
    if all(before.get(name) == stamp(packages, name) for name in found(packages, [step["into"]])):
        raise Failure(
            "compiling {} left nothing in {}".format(step["name"], step["into"]),
            "correct the script {} of the stack, or its `into`".format(step["name"]),
            everywhere=True,
        )


def environment(
    tree: str, toolkit: str, place: str, into: str, arch: str, archs: "list[str]", jobs: int
) -> "dict[str, str]":
    """The variables of a step. CC and CXX are left to the toolkit's own choice: a wrong one breaks Triton."""
    return {
        "CUDA_HOME": toolkit,
        "PATH": ":".join([os.path.join(tree, "bin"), os.path.join(toolkit, "bin"), "/usr/bin", "/bin"]),
        "LD_LIBRARY_PATH": os.path.join(toolkit, "lib64"),
        "TORCH_CUDA_ARCH_LIST": capability(arch),
        "FLASHINFER_CUDA_ARCH_LIST": " ".join(capability(each) for each in archs),
        "MAX_JOBS": str(jobs),
        "NVCC_THREADS": "1",
        "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
        "HOME": place,
        "TMPDIR": os.path.join(place, "tmp"),
        "XDG_CACHE_HOME": os.path.join(place, "cache"),
        "TORCH_EXTENSIONS_DIR": os.path.join(place, "torch_extensions"),
        "FLASHINFER_WORKSPACE_BASE": place,
        "PYTHONUNBUFFERED": "1",
        "GPUFLEET_INTO": into,
        "GPUFLEET_ARCH": arch,
        "GPUFLEET_ARCHS": " ".join(archs),
    }


def capability(arch: str) -> str:
    """`7.5` for `sm75`, `12.1` for `sm121`."""
    return "{}.{}".format(arch[2:-1], arch[-1])


def cuda_home(toolkit: Optional[str]) -> str:
    """The directory of a toolkit, `13-0`. Raises Failure when its compiler is not there."""
    name = (toolkit or "none").replace("-", ".")
    directory = os.path.join(toolkits.PARENT, "cuda-" + name)
    if not os.access(os.path.join(directory, "bin", "nvcc"), os.X_OK):
        raise Failure(
            "there is no CUDA compiler {}/bin/nvcc to compile with".format(directory),
            "install cuda-toolkit-{} (a deploy does so unless host.install_packages is False)".format(toolkit or "X-Y"),
        )
    return directory


def found(packages: str, folders: "list[str]") -> "list[str]":
    """The plain files below these folders, by path relative to the packages."""
    names: set = set()
    for folder in folders:
        for at, _, inside in os.walk(os.path.join(packages, folder)):
            paths = [os.path.join(at, name) for name in inside]
            names.update(os.path.relpath(path, packages) for path in paths if not os.path.islink(path))
    return sorted(names)


def byte_code(packages: str) -> "list[str]":
    """All compiled modules of the packages, by path relative to them."""
    return [name for name in found(packages, [""]) if archive.is_byte_code(name)]


def not_plain(packages: str, folder: str) -> Optional[str]:
    """What is below a folder of the packages, or the folder itself, that is neither a plain file nor a directory."""
    top = os.path.join(packages, folder)
    if os.path.realpath(top) != os.path.join(os.path.realpath(packages), os.path.normpath(folder)):
        return "{}, which is a link".format(folder)
    for at, folders, inside in os.walk(top):
        for name in folders + inside:
            mode = os.lstat(os.path.join(at, name)).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                kind = "a link" if stat.S_ISLNK(mode) else "no file"
                return "{}, which is {}".format(os.path.relpath(os.path.join(at, name), packages), kind)
    return None


def stamp(packages: str, name: str) -> tuple:
    known = os.stat(os.path.join(packages, name))
    return known.st_size, known.st_mtime_ns, known.st_ino


def keep(name: str, packages: str, made: "list[str]") -> dict:
    """Pack what was made into the store, for like boxes."""
    os.makedirs(store.ROOT, exist_ok=True)
    aside = os.path.join(store.ROOT, ".{}.part".format(name))
    filename = "{}-compiled.tar".format(name)
    try:
        archive.make(aside, packages, made)
        sha256 = files.sha256(aside) or ""
        path = store.path(filename, sha256)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.replace(aside, path)
    finally:
        files.with_suppressed_unlink(aside)  # on a full disk nothing of it may stay in the way
    size = os.path.getsize(path)
    return {"filename": filename, "sha256": sha256, "size": size, "glibc": glibc(), "byte_code": True}


def usable(known: dict) -> bool:
    """Whether an archive is in the store, and was compiled on a system with no newer C library than this one."""
    path = store.path(known["filename"], known["sha256"])
    if files.sha256(path) != known["sha256"]:
        files.with_suppressed_unlink(path)
        return False
    theirs, ours = known.get("glibc") or "0", glibc()
    if version(theirs) > version(ours):
        events.log("{} was compiled with glibc {}, here is {}: compiling".format(known["filename"], theirs, ours))
        return False
    return True


def glibc() -> str:
    """`2.36`"""
    return (os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0").split()[-1]


def version(text: str) -> "list[int]":
    return [int(part) for part in text.split(".") if part.isdigit()]
