"""Packages that gpufleet installed for a CUDA toolkit, held by their exact names; an owner's holds are never touched.

A pattern such as `libnv*` would hold what the next toolkit needs. What is ours is written down before apt is called, so
that a power cut leaves a hold that is missing, which the next look finds, and never one that nobody knows of.
"""

from __future__ import annotations

import contextlib
import json
import os

from hostkit import apt_call, events, files, packages
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, Iterator, List

RECORD = os.path.join(files.STATE, "packages.json")
KEYS = ("installed", "held", "added")


def load(roots: Roots) -> Dict[str, List[str]]:
    """{"installed": names, "held": those of them that we put on hold, "added": others that we installed}; empty when
    absent or unreadable."""
    try:
        loaded = {"added": [], **json.loads(roots.text(RECORD))}  # of before they were written down
        return {key: sorted(str(name) for name in loaded[key]) for key in KEYS}
    except (OSError, ValueError, KeyError, TypeError):
        return {key: [] for key in KEYS}


def read(roots: Roots) -> Dict[str, List[str]]:
    """What of the record is true of the box now: installed still, and on hold still."""
    record = load(roots)
    now = _held_now(roots, record["installed"])
    return {
        "installed": [name for name in record["installed"] if name in now],
        "held": [name for name in record["held"] if now.get(name)],
    }


def note(toolkit: Iterable[str], others: Iterable[str] = ()) -> None:
    """Write down what is about to be installed by us."""
    record = load(Roots())
    new = {"installed": toolkit, "added": others}
    _save({**record, **{key: sorted({*record[key], *names}) for key, names in new.items()}})


def all_installed() -> List[str]:
    """Every package that we installed and that is here still."""
    record = load(Roots())
    return sorted(_held_now(Roots(), {*record["installed"], *record["added"]}))


def hold() -> None:
    """Put on hold what we installed and nobody holds; forget what is not installed any more."""
    record, now = _known()
    free = [name for name in record["installed"] if not now[name]]
    _save({**record, "held": sorted({*record["held"], *free})})
    if free:
        events.log("hold {} packages of the CUDA toolkit".format(len(free)))
        _mark("hold", free)


def release() -> None:
    """Take our holds back, and only ours."""
    record, now = _known()
    ours = [name for name in record["held"] if now[name]]
    if ours:
        events.log("release the hold of {} packages".format(len(ours)))
        _mark("unhold", ours)
    _save({**record, "held": []})


@contextlib.contextmanager
def released() -> Iterator[None]:
    """Our holds are off while the block runs, so that another toolkit may renew what both share."""
    record, now = _known()
    ours = [name for name in record["held"] if now[name]]
    if ours:
        _mark("unhold", ours)
    try:
        yield
    finally:
        still = _held_now(Roots(), ours)
        if still:
            _mark("hold", list(still))


def _known() -> tuple:
    """The record without what is gone from the box, and whether each of its packages is on hold."""
    record = load(Roots())
    now = _held_now(Roots(), [*record["installed"], *record["added"]])
    return {key: [name for name in names if name in now] for key, names in record.items()}, now


def _held_now(roots: Roots, names: Iterable[str]) -> Dict[str, bool]:
    """Whether it is on hold, of each of these packages that is installed."""
    wanted = set(names)
    if not wanted:
        return {}
    found = packages.installed(roots, wanted.__contains__)
    return {name: held for name, held, _ in found if name in wanted}


def _mark(word: str, names: List[str]) -> None:
    apt_call.apt(["apt-mark", word, *names])


def _save(record: Dict[str, List[str]]) -> None:
    if record != load(Roots()):
        files.write(RECORD, (json.dumps({"schema": 1, **record}, indent=1, sort_keys=True) + "\n").encode())
