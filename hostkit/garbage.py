"""What lies on a box that no release in use names, with its size. Looks only; `sweep` frees it."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Iterator, Optional

from hostkit import build, files, garbage_models, install, models_home, named, release, runtime, store

CACHE = "/var/cache"
LINK = "gpufleet-kit.pyz"
OLD_CACHE = os.path.join(files.ROOT, "cache")  # of versions before the store
# A deploy puts things there before a release names them; one that is under way has done so within this time.
YOUNG_SECONDS = 3600
KIT_SECONDS = 24 * 3600  # another controller may be using another kit: the same time as where kits are sent


def run(spec: dict) -> dict:
    """{"items": [{kind, name, path, bytes, why}], "kept": {kind: bytes}, "young": [paths], "free": bytes}.

    `young` are those that a deploy may be about to use, and are left for now.
    Kinds: release, runtime, build, store, kit, uv, cache, model; a model is freed only when it is asked for.
    """
    found, young = everything(named.read())
    return {"items": found, "kept": kept(found), "young": young, "free": free_bytes()}


def everything(known: named.Named) -> "tuple[list, list]":
    """(items, paths that are too young to tell)"""
    items: list = []
    young: list = []
    counted: set = set()  # a file of two names is freed once, whichever of them goes first
    for kind, path, why, grace in candidates(known):
        if abs(age(path)) < grace:  # what is of a time to come was made before the clock was put right
            young.append(path)
        else:
            items.append({"kind": kind, "name": short(path), "path": path, "bytes": size(path, counted), "why": why})
    return items, young


def candidates(known: named.Named) -> "Iterator[tuple[str, str, str, float]]":
    """(kind, path, why, seconds for which it is left alone)"""
    yield from releases(known)
    yield from runtimes(known)
    yield from builds()
    yield from stored(known)
    yield from kits()
    yield from caches(known)
    yield from garbage_models.unnamed(known, entries, YOUNG_SECONDS)
    yield from garbage_models.stored(known, entries, age, YOUNG_SECONDS)


def releases(known: named.Named) -> "Iterator[tuple[str, str, str, float]]":
    for instance, kept_ones in known.releases.items():
        folder = os.path.join(release.INSTANCES, instance, "releases")
        why = "older than the release before" if kept_ones else "its instance was retired"
        for name in entries(folder):
            if name not in kept_ones:
                yield "release", os.path.join(folder, name), why, YOUNG_SECONDS


def runtimes(known: named.Named) -> "Iterator[tuple[str, str, str, float]]":
    for name in entries(runtime.RUNTIMES):
        path = os.path.join(runtime.RUNTIMES, name)
        if name in known.runtimes:
            continue
        if files.is_complete(path) and not name.startswith("."):
            yield "runtime", path, "no release names it", YOUNG_SECONDS
        else:
            yield "runtime", path, "an install that did not end", 0


def builds() -> "Iterator[tuple[str, str, str, float]]":
    """What builds from source have left that did not end, and notes of wheels that are not in the store any more."""
    for name in entries(build.BUILDS):
        path = os.path.join(build.BUILDS, name)
        if name.startswith("."):
            yield "build", path, "a build that did not end", 0
        elif not build.recorded(path):
            yield "build", path, "its wheel is not here any more", YOUNG_SECONDS


def stored(known: named.Named) -> "Iterator[tuple[str, str, str, float]]":
    """Files that no runtime in use was made of; those help like boxes, and make a damaged runtime again."""
    used: set = set()
    for name in known.runtimes:
        mark = files.mark(os.path.join(runtime.RUNTIMES, name))
        used.update(mark.get("files") or [])
        used.update(item["sha256"] for item in (mark.get("uv"), mark.get("compiled")) if item)
    for digest in entries(store.ROOT):
        if digest not in used:
            yield "store", os.path.join(store.ROOT, digest), "no runtime in use was made of it", YOUNG_SECONDS
    if os.path.isdir(OLD_CACHE):
        yield "store", OLD_CACHE, "of an older gpufleet", 0


def kits() -> "Iterator[tuple[str, str, str, float]]":
    # What runs this, and what units run: the link to the newest kit.
    ours = {
        os.path.basename(os.path.realpath(path)) for path in (sys.argv[0], os.path.join(install.kit_folder(), LINK))
    }
    used = {used_uv(name) for name in entries(runtime.RUNTIMES)}
    for name in entries(install.kit_folder()):
        path = os.path.join(install.kit_folder(), name)
        if re.fullmatch(r"gpufleet-kit-[0-9a-f]{12}\.pyz", name) and name not in ours:
            yield "kit", path, "of another version of gpufleet", KIT_SECONDS
        elif name.startswith("uv-") and name not in used:
            yield "uv", path, "no runtime was installed with it", YOUNG_SECONDS
        elif name.startswith(".uv-"):
            yield "uv", path, "an install that did not end", 0


def used_uv(name: str) -> str:
    known = files.mark(os.path.join(runtime.RUNTIMES, name)).get("uv")
    return install.uv_folder(known) if known else ""


def caches(known: named.Named) -> "Iterator[tuple[str, str, str, float]]":
    """Compile caches of an instance for a runtime it does not use any more."""
    for folder in entries(CACHE):
        instance = folder[len("gpufleet-") :]
        if not folder.startswith("gpufleet-") or os.path.islink(os.path.join(CACHE, folder)):
            continue
        for name in entries(os.path.join(CACHE, folder)):
            path = os.path.join(CACHE, folder, name)
            if "{}/{}".format(instance, name) not in known.caches and os.path.isdir(path) and not os.path.islink(path):
                yield "cache", path, "{} does not run on it any more".format(instance), YOUNG_SECONDS


def kept(found: list) -> dict:
    """{kind: bytes} of what stays, for the kinds that fill a disk."""
    homes = {"runtime": runtime.RUNTIMES, "store": store.ROOT, "model": models_home.root()}
    freed = {
        kind: sum(item["bytes"] for item in found if lies(item["path"]).startswith(home + "/"))
        for kind, home in homes.items()
    }
    return {kind: max(0, size(home) - freed[kind]) for kind, home in homes.items()}


def lies(path: str) -> str:
    """Where it is, its folder's links followed: the models' store may be on another disk."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def free_bytes() -> int:
    disk = os.statvfs(files.ROOT)
    return disk.f_bavail * disk.f_frsize


def entries(folder: str) -> list:
    """Its entries; none where there is no such folder, and none through a link."""
    if os.path.islink(folder):
        return []
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def age(path: str) -> float:
    """Seconds since it was last changed; of a runtime, since it was marked whole."""
    mark = os.path.join(path, files.COMPLETE)
    try:
        return time.time() - os.lstat(mark if os.path.lexists(mark) else path).st_mtime
    except OSError:
        return 0.0


def size(path: str, seen: "Optional[set]" = None) -> int:
    """Bytes on the disk of all below, links not followed, a file of several names counted once, and not again when it
    was `seen`."""
    seen = set() if seen is None else seen
    total = 0
    waiting = [path]
    while waiting:
        at = waiting.pop()
        try:
            known = os.lstat(at)
            if os.path.isdir(at) and not os.path.islink(at):
                waiting += [os.path.join(at, name) for name in os.listdir(at)]
        except OSError:  # gone since it was listed
            continue
        if (known.st_dev, known.st_ino) not in seen:
            seen.add((known.st_dev, known.st_ino))
            total += known.st_blocks * 512
    return total


def short(path: str) -> str:
    """A path as it is told: of the store the file's own name, else from the product's folder on."""
    if os.path.dirname(path) in (store.ROOT, store.MODELS_ROOT):
        inside = entries(path)
        return inside[0] if inside else os.path.basename(path)
    for home in (files.ROOT, CACHE):
        if path.startswith(home + "/"):
            return os.path.relpath(path, home)
    return path
