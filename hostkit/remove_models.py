"""The models of a box when gpufleet leaves it: those made of the store's files, links to folders of the owner's, and
what in the models' folder is neither."""

from __future__ import annotations

import os
from typing import List, NamedTuple

from hostkit import events, files, garbage, garbage_models, model, models_home, remove_places, store


class Models(NamedTuple):
    """Paths. + links: to models of the owner's; + made: of gpufleet's; + others: of nobody knows whom"""

    links: List[str]
    made: List[str]
    others: List[str]


def find() -> Models:
    found = Models([], [], [])
    stored = garbage_models.inodes(os.path.realpath(store.MODELS_ROOT))
    for folder in remove_places.entries(models_home.root()):
        if os.path.basename(folder).startswith("."):
            (found.made if is_store(folder) else found.others).append(folder)
        elif os.path.islink(folder) or not os.path.isdir(folder):
            found.others.append(folder)
        else:
            for path in remove_places.entries(folder):
                kind = found.links if is_link(path) else found.made if is_made(path, stored) else found.others
                kind.append(path)
    return found


def is_store(folder: str) -> bool:
    return folder == os.path.join(models_home.root(), os.path.basename(store.MODELS_ROOT))


def is_link(path: str) -> bool:
    """To a model's folder, which may be gone; a link to a file is a part of a model that somebody else put there."""
    return os.path.islink(path) and not os.path.isfile(path)


def is_made(path: str, stored: "set[tuple[int, int]]") -> bool:
    """Whole, or unfinished; or, where its mark was taken away, made of files that the store has, too."""
    unfinished = garbage_models.UNFINISHED.match(os.path.basename(path))
    return files.is_complete(path) or bool(unfinished) or bool(garbage_models.inodes(path) & stored)


def models(found: Models) -> List[str]:
    """`name/revision` of those that are made, without the store."""
    return [os.path.relpath(path, models_home.root()) for path in found.made if not is_store(path)]


def size(found: Models) -> int:
    """Bytes of what is made; a file with a name in the store and one in a model counts once."""
    seen: set = set()
    return sum(garbage.size(path, seen) for path in found.made)


def remove(with_models: bool) -> None:
    """Remove the links; and what was made, when that is asked for. What else is there is left, as is a folder on
    another disk that the models' folder is a link to: it is the owner's."""
    found = find()
    for path in found.links + (found.made if with_models else []):
        events.log("removing " + path)
        remove_places.delete(path) if is_store(path) else remove_places.discard(path)
    for folder in remove_places.entries(models_home.root()):
        if is_store(folder):
            for path in remove_places.entries(folder):
                remove_places.close(path)
        if not os.path.islink(folder):
            remove_places.close(folder)
    if models_home.is_linked():
        files.with_suppressed_unlink(model.MODELS)
    else:
        remove_places.close(model.MODELS)
