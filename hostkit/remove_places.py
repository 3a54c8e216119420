"""What of gpufleet's folders is gpufleet's: known by how it is named and marked. Whatever else lies there is left.

A folder of these may be a link to another disk, or a disk of its own, with things of the owner's in it: so no folder is
removed as a whole, and the one that a link leads to stays.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Callable, Iterator, List, NamedTuple

from hostkit import build, events, files, garbage, install, release, runtime, store
from hostkit.errors import Failure

VAR = "/var/lib"
CACHE = "/var/cache"
UNFINISHED = re.compile(r"\..+\.(building|gone)")
KIT = re.compile(r"\.?gpufleet-kit.*|\.?uv-.+|\.part-.+|\.gpufleet-.+")
BOOKS = re.compile(
    r"(state|packages|host|host-before|host-refused|models-home|lock)\.json|journal\.jsonl|.+\.unreadable|\.gpufleet-.+"
)


class Place(NamedTuple):
    """+ kind: as it is called; + is_ours: whether an entry, by its path, is gpufleet's"""

    kind: str
    folder: str
    is_ours: Callable[[str], bool]


def places() -> List[Place]:
    """All but those of instances, models and the kit."""
    return [
        Place("runtime", runtime.RUNTIMES, is_runtime),
        Place("store", store.ROOT, is_stored),
        Place("build", build.BUILDS, is_build),
        Place("cache", garbage.OLD_CACHE, lambda path: True),
        Place("cache", os.path.join(CACHE, "gpufleet"), lambda path: os.path.basename(path) == "verify"),
    ]


def kit() -> Place:
    return Place("kit", install.kit_folder(), lambda path: bool(KIT.fullmatch(os.path.basename(path))))


def books() -> Place:
    """State and journal. It is the user gpufleet's home, so what else is in it is the user's; not so through a link."""
    linked = os.path.islink(files.STATE)
    return Place("books", files.STATE, lambda path: not linked or bool(BOOKS.fullmatch(os.path.basename(path))))


def is_runtime(path: str) -> bool:
    made = files.is_complete(path) or os.path.isfile(os.path.join(path, "pyvenv.cfg"))
    return made or bool(UNFINISHED.fullmatch(os.path.basename(path)))


def is_stored(path: str) -> bool:
    name = os.path.basename(path)
    return bool(store.SHA256.fullmatch(name) or UNFINISHED.fullmatch(name))


def is_build(path: str) -> bool:
    name = os.path.basename(path)
    return name.endswith(".json") or bool(UNFINISHED.fullmatch(name))


def entries(folder: str) -> List[str]:
    """The paths in a folder, also through a link; none where there is no such folder."""
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    except (FileNotFoundError, NotADirectoryError):
        return []


def ours(place: Place) -> List[str]:
    return [path for path in entries(place.folder) if place.is_ours(path)]


def of_instance(name: str) -> List[str]:
    """The folders of an instance that are there: its releases, its home, its caches."""
    places = (
        os.path.join(release.INSTANCES, name),
        os.path.join(VAR, "gpufleet-" + name),
        os.path.join(CACHE, "gpufleet-" + name),
    )
    return [path for path in places if os.path.lexists(path)]


def left_by_writers() -> Iterator[str]:
    """Files that were being written when the power went: hostkit.files writes aside, and renames."""
    apt = "/etc/apt"
    for folder in (files.UNITS, "/etc", "/run", apt + "/sources.list.d", apt + "/keyrings", apt + "/apt.conf.d"):
        for path in entries(folder):
            if os.path.basename(path).startswith(".gpufleet-") and os.path.isfile(path):
                yield path


def delete(path: str) -> None:
    """Take away what is there, a link itself and not what it leads to. Raises Failure with what stands in the way."""
    try:
        if os.path.islink(path) or not os.path.isdir(path):
            os.unlink(path)
        else:
            shutil.rmtree(path)
    except FileNotFoundError:
        if os.path.lexists(path):  # something in it went while it was being removed
            delete(path)
    except OSError as error:
        raise Failure(
            "{} cannot be removed: {}".format(error.filename or path, error.strerror),
            "see to that (mounted, read-only, immutable?), then call `gpufleet remove` again",
        )


def discard(path: str) -> None:
    """`delete` of a folder that is known by what is in it: it loses its name first, and is known by that if cut off."""
    if os.path.isdir(path) and not os.path.islink(path) and not UNFINISHED.fullmatch(os.path.basename(path)):
        aside = os.path.join(os.path.dirname(path), ".{}.gone".format(os.path.basename(path)))
        delete(aside)
        os.rename(path, aside)
        path = aside
    delete(path)


def clear(place: Place) -> None:
    """Remove what is ours of a place, then the folder when nothing else is in it."""
    for path in ours(place):
        events.log("removing " + path)
        discard(path) if place.kind == "runtime" else delete(path)
    close(place.folder)


def close(folder: str) -> None:
    """Remove a folder that is empty, or a link to one: the folder that it leads to is the owner's. Else it is left."""
    if os.path.islink(folder):
        if not entries(folder):
            os.unlink(folder)
        return
    try:
        os.rmdir(folder)
    except OSError:  # not there, not empty, or a disk of its own
        pass
