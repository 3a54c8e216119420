"""The models of a box when gpufleet leaves it: those made of the store's files, links to folders of the owner's, and
what in the models' folder is neither."""

from __future__ import annotations

import os
from typing import List, NamedTuple, Optional

from hostkit import events, files, garbage, garbage_models, model, models_home, remove_places, store


class Models(NamedTuple):
    """Paths. + links: to models of the owner's; + made: of gpufleet's; + others: of nobody knows whom"""

    links: List[str]
    made: List[str]
    others: List[str]


def find(home: Optional[str] = None) -> Models:
    """+ home: `host.models`: after a removal that left models behind nothing on the box leads there any more. Links in
    it are the owner's: those of gpufleet went with that removal."""
    found = Models([], [], [])
    for root in models_home.roots(home):
        inside = find_in(root)
        if root != models_home.root():
            inside = Models([], inside.made, inside.others + inside.links)
        found = Models(*(one + more for one, more in zip(found, inside)))  # noqa: B905 - of one length
    return found


def find_in(root: str) -> Models:
    found = Models([], [], [])
    stored = garbage_models.inodes(os.path.realpath(store_of(root)))
    for folder in remove_places.entries(root):
        if os.path.basename(folder).startswith("."):
            (found.made if folder == store_of(root) else found.others).append(folder)
        elif os.path.islink(folder) or not os.path.isdir(folder):
            found.others.append(folder)
        else:
            for path in remove_places.entries(folder):
                kind = found.links if is_link(path) else found.made if is_made(path, stored) else found.others
                kind.append(path)
    return found


def store_of(root: str) -> str:
    return os.path.join(root, os.path.basename(store.MODELS_ROOT))


def is_store(path: str) -> bool:
    return os.path.basename(path) == os.path.basename(store.MODELS_ROOT)


def is_link(path: str) -> bool:
    """To a model's folder, which may be gone; a link to a file is a part of a model that somebody else put there."""
    return os.path.islink(path) and not os.path.isfile(path)


def is_made(path: str, stored: "set[tuple[int, int]]") -> bool:
    """Whole, or unfinished; or, where its mark was taken away, made of files that the store has, too."""
    unfinished = garbage_models.UNFINISHED.match(os.path.basename(path))
    return files.is_complete(path) or bool(unfinished) or bool(garbage_models.inodes(path) & stored)


def models(found: Models) -> List[str]:
    """`name/revision` of those that are made, without the store."""
    return ["/".join(path.split(os.sep)[-2:]) for path in found.made if not is_store(path)]


def size(found: Models) -> int:
    """Bytes of what is made; a file with a name in the store and one in a model counts once."""
    seen: set = set()
    return sum(garbage.size(path, seen) for path in found.made)


def remove(with_models: bool, home: Optional[str] = None) -> None:
    """Remove the links; and what was made, when that is asked for. What else is there is left, as is a folder on
    another disk that the models' folder is a link to: it is the owner's. + home: see `find`"""
    found, roots = find(home), models_home.roots(home)
    for path in found.links + [path for path in found.made if with_models and not is_store(path)]:
        events.log("removing " + path)
        remove_places.discard(path)
    folders = [folder for root in roots for folder in remove_places.entries(root)]
    for folder in folders:
        if not os.path.islink(folder) and not is_store(folder):
            remove_places.close(folder)
    for folder in filter(is_store, folders):  # last: by it a folder is known to be ours when this is cut off
        if with_models:
            events.log("removing " + folder)
            remove_places.delete(folder)
        for path in remove_places.entries(folder):
            remove_places.close(path)
        if not os.path.islink(folder):
            remove_places.close(folder)
    if models_home.is_linked():
        files.with_suppressed_unlink(model.MODELS)
    else:
        remove_places.close(model.MODELS)
