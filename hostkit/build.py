"""A distribution built from its source archive on this box: its wheel is in the store, or there is nothing.

It is built aside, in `.<name>.building`. What an attempt leaves there (`build`, `.deps`, `CMakeCache.txt`,
`CMakeFiles`, the build's caches) goes before the next one, which unpacks its source anew: of a half-built tree nobody
can say what is right. Its environment is kept, when that was whole.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import time
import zipfile
from typing import Any

from hostkit import compile, compiling, events, files, install, parallel, shell, space, store
from hostkit.errors import Failure
from hostkit.ninja import span

BUILDS = os.path.join(files.ROOT, "builds")
# What one compiler takes of memory: field problem 17 (`MAX_JOBS = min(nproc, RAM_GB/4)`), as rule GF210 says.
MIB_PER_JOB = 4096
ATTEMPT = ("source", "out", "tmp", "work")  # what belongs to one attempt alone


def run(spec: dict) -> dict:
    """Build the wheel of `distribution`, from files that are in the store.

    + name: of what it is built from, by content; distribution, version: what the wheel must be
    + source: {filename, sha256} of the archive, a tar with one folder
    + python: minor version, `3.11`; uv: {filename, sha256} of its wheel; lock: text of the hashed requirements of the
      environment it is built in; files: [{filename, sha256, size}], their wheels
    + env: the build's variables, CUDA_HOME among them where nvcc is needed; without MAX_JOBS that is reckoned here
    Returns {"wheel": {filename, sha256, size, glibc}, "seconds"}; `seconds` is 0 when it was there already. `glibc` is
    this box's: the wheel may not load where it is older.
    """
    record = os.path.join(BUILDS, os.path.basename(spec["name"]) + ".json")
    wheel = recorded(record)
    if wheel:
        return {"wheel": wheel, "seconds": 0}
    directory = os.path.join(BUILDS, ".{}.building".format(os.path.basename(spec["name"])))
    if clean(directory):
        events.log("an earlier build of {} did not end: it is begun anew".format(spec["name"]))
    compiler(spec["env"].get("CUDA_HOME"))
    os.makedirs(directory, exist_ok=True)
    began = time.monotonic()
    try:
        with space.told_when_full(directory, spec["name"]):
            environment(spec, directory)
            wheel = {**stocked(make(spec, directory), spec), "glibc": compile.glibc()}
    finally:
        clean(directory)
    seconds = round(time.monotonic() - began)
    files.write(record, (json.dumps({"wheel": wheel, "seconds": seconds}, sort_keys=True) + "\n").encode())
    shutil.rmtree(directory, ignore_errors=True)
    events.log("{} was built in {}".format(wheel["filename"], span(seconds)))
    return {"wheel": wheel, "seconds": seconds}


def recorded(path: str) -> dict:
    """The wheel of an earlier build, while the store has it; nothing otherwise."""
    try:
        with open(path, encoding="utf-8") as handle:
            wheel = json.load(handle)["wheel"]
    except (OSError, ValueError, KeyError):
        return {}
    return dict(wheel) if store.has(wheel["filename"], wheel["sha256"], wheel["size"]) else {}


def clean(directory: str) -> bool:
    """Take away what an attempt has left; True when there was something."""
    left = [os.path.join(directory, name) for name in ATTEMPT if os.path.isdir(os.path.join(directory, name))]
    for path in left:
        shutil.rmtree(path)
    return bool(left)


def compiler(home: "str | None") -> None:
    """Raises Failure when the toolkit that is to compile is not there."""
    if home and not os.access(os.path.join(home, "bin", "nvcc"), os.X_OK):
        raise Failure(
            "there is no nvcc in {}/bin".format(home),
            "let gpufleet install the toolkit (no `host.toolkit`), then deploy again",
        )


def environment(spec: dict, directory: str) -> None:
    """The virtual environment of the build, made once."""
    tree = os.path.join(directory, "environment")
    if files.is_complete(tree):
        return
    shutil.rmtree(tree, ignore_errors=True)
    work = os.path.join(directory, "work")
    os.makedirs(work)
    install.environment(spec, tree, work)
    files.complete(tree, {"name": spec["name"]})


def make(spec: dict, directory: str) -> str:
    """Unpack and build; the path of the wheel."""
    source, out, tmp = (os.path.join(directory, name) for name in ("source", "out", "tmp"))
    for path in (source, tmp):
        os.makedirs(path)
    unpack(spec["source"], source)
    (root,) = os.listdir(source)
    binaries = os.path.join(directory, "environment", "bin")
    home = spec["env"].get("CUDA_HOME")
    places = [binaries] + ([os.path.join(home, "bin")] if home else []) + [shell.ENVIRONMENT["PATH"]]
    many = spec["env"].get("MAX_JOBS") or str(parallel.here(MIB_PER_JOB))
    env = {
        "MAX_JOBS": many,
        "CMAKE_BUILD_PARALLEL_LEVEL": many,
        **install.OFFLINE,
        **spec["env"],
        "PATH": os.pathsep.join(places),
        "TMPDIR": tmp,  # /tmp may be a part of memory
        "UV_CACHE_DIR": os.path.join(tmp, "cache"),
    }
    arguments = [install.uv(spec["uv"]), "build", "--wheel", "--no-build-isolation", "--out-dir", out,
                 "--python", os.path.join(binaries, "python"), os.path.join(source, root)]  # fmt: skip
    events.log("building {} with MAX_JOBS={}".format(spec["name"], many))
    compiling.run(spec["distribution"], arguments, env, source, os.path.join(directory, "log"))
    wheels = sorted(name for name in os.listdir(out) if name.endswith(".whl"))
    right = "{}-{}-".format(spec["distribution"].replace("-", "_"), spec["version"])
    if len(wheels) != 1 or not wheels[0].startswith(right):
        raise Failure(
            "the build made {}, not one wheel {}…".format(", ".join(wheels) or "nothing", right),
            "see whether `name`, `version` and `env` of `build` in the stack's page are those of the archive",
            everywhere=True,
        )
    return os.path.join(out, wheels[0])


def unpack(archive: dict, directory: str) -> None:
    """Unpack the archive, whose hash is right when this returns. Raises Failure."""
    path = store.path(archive["filename"], archive["sha256"])
    if files.sha256(path) != archive["sha256"]:
        raise install.damage(path)
    with tarfile.open(path, "r:") as tar:
        # The controller packed it, files in one folder; not every python3 of a box knows filters.
        more: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(directory, **more)  # noqa: S202


def stocked(path: str, spec: dict) -> dict:
    """Copy the wheel into the store: whole and read through, or not at all."""
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except zipfile.BadZipFile as error:
        bad = str(error)
    if bad:
        raise Failure("the wheel that was built is damaged ({})".format(bad), "look at the disk, then deploy again")
    digest = files.sha256(path)
    assert digest is not None
    target = store.path(os.path.basename(path), digest)
    aside = os.path.join(store.ROOT, ".{}.part".format(digest))
    try:
        with space.told_when_full(store.ROOT, os.path.basename(path)):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(path, aside)  # no rename: the store may be a link to another disk
            os.chmod(aside, 0o644)
            with open(aside, "rb") as handle:
                os.fsync(handle.fileno())
                size = os.fstat(handle.fileno()).st_size
            os.replace(aside, target)
    finally:
        files.with_suppressed_unlink(aside)
    files.sync_directory(os.path.dirname(target))
    return {"filename": os.path.basename(path), "sha256": digest, "size": size}
