"""Models that no release in use names, and what of the store is theirs alone.

A model's files have two names, one in its directory and one in the store, from which other boxes get them. A file of
the store is free when no directory has it; it goes with the directory when only such directories have it.
"""

from __future__ import annotations

import math
import os
import re
import time
from typing import Callable, Iterator, Tuple

from hostkit import files, model, models_home, named, store

Candidate = Tuple[str, str, str, float]  # kind, path, why, seconds for which it is left alone
UNFINISHED = re.compile(r"(.+?)(\.incoming|\.incoming\.head|\.gone)$")


def directories(root: str, entries: Callable[[str], list]) -> "Iterator[tuple[str, str]]":
    """(`name/revision`, path) of each, also of those that are being made."""
    for name in entries(root):
        if name.startswith("."):
            continue  # the store
        for revision in entries(os.path.join(root, name)):
            unfinished = UNFINISHED.match(revision)
            whole = unfinished.group(1) if unfinished else revision
            yield "{}/{}".format(name, whole), os.path.join(root, name, revision)


def unnamed(known: named.Named, entries: Callable[[str], list], young: float) -> Iterator[Candidate]:
    for name, path in directories(models_home.root(), entries):
        if name not in known.models and is_ours(path):
            yield "model", path, "no release names it", young


def is_ours(path: str) -> bool:
    """Whether gpufleet made a model's directory: in a folder of an owner's, others may lie beside them."""
    if not models_home.is_linked():
        return True
    return os.path.islink(path) or files.is_complete(path) or bool(UNFINISHED.match(os.path.basename(path)))


def stored(
    known: named.Named, entries: Callable[[str], list], age: Callable[[str], float], young: float
) -> Iterator[Candidate]:
    """Files of the models' store; of kind `model` those that go with a directory."""
    used: set = set()
    going: set = set()
    linked = os.path.islink(model.MODELS) and not models_home.is_linked()  # then no directory below is freed
    for name, path in directories(os.path.realpath(model.MODELS), entries):
        stays = linked or name in known.models or abs(age(path)) < young or not is_ours(path)
        (used if stays else going).update(inodes(path))
    digests = entries(os.path.realpath(store.MODELS_ROOT))
    folders = [os.path.join(store.MODELS_ROOT, digest) for digest in digests]
    # A deploy brings the files of a model for hours, before a directory has the first of them.
    patience = math.inf if any(written(folder, young) for folder in folders) else young
    for folder in folders:
        its = inodes(folder)
        if its & used:
            continue
        if its & going:
            yield "model", folder, "of a model that no release names", young
        else:
            yield "store", folder, "no model has it", patience


def written(folder: str, young: float) -> bool:
    """Whether one of its files was written lately."""
    try:
        times = [os.lstat(os.path.join(folder, name)).st_mtime for name in os.listdir(folder)]
    except OSError:  # gone since it was listed
        return False
    return any(abs(time.time() - each) < young for each in times)


def inodes(folder: str) -> "set[tuple[int, int]]":
    """The regular files below a folder; none through a link."""
    found: "set[tuple[int, int]]" = set()
    if os.path.islink(folder):
        return found
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                known = os.lstat(os.path.join(at, name))
            except OSError:  # gone since it was listed
                continue
            found.add((known.st_dev, known.st_ino))
    return found
