"""What of these files the box's store has, whole or in part."""

from __future__ import annotations

import os
from typing import Optional

from hostkit import events, files, model, pieces, space, store
from hostkit.errors import Failure


def run(spec: dict) -> dict:
    """Look for `files` [{filename, sha256, size, place, pieces, at}].

    + pieces: the sha256 of each 16 MiB of a large file
    + at: where the file of a model may lie already, below `models/`
    + check: read each file, and remove those whose hash is wrong, or what is damaged of those that have `pieces`;
      without it name and size are believed
    + spare: bytes that must be free beyond what lacks
    + what: what the files are of, told where there is no room
    Returns {"have": [sha256], "parts": {sha256: bytes}, "holes": {sha256: [[offset, length]]}}: of a part with holes
    `parts` counts the bytes that are good. Raises Failure when there is no room for what lacks.
    """
    have: list = []
    parts, holes = {}, {}
    for wanted in spec["files"]:
        if spec.get("check"):
            check(wanted)
        at, sha256 = store.at(wanted), wanted["sha256"]
        lacks = pieces.read(at, wanted.get("size"))
        if store.is_whole(at, wanted.get("size")):
            have.append(sha256)
        elif lacks is not None:
            holes[sha256] = lacks
            parts[sha256] = wanted["size"] - pieces.total(lacks)
        elif store.part_size(at):
            parts[sha256] = store.part_size(at)
    if spec.get("spare") is not None:
        check_room(spec, have, parts)
    return {"have": have, "parts": parts, "holes": holes}


def check_room(spec: dict, have: list, parts: dict) -> None:
    for place in sorted({wanted.get("place", store.WHEELS) for wanted in spec["files"]}):
        lacking = [
            max(0, (wanted.get("size") or 0) - parts.get(wanted["sha256"], 0))
            for wanted in spec["files"]
            if wanted.get("place", store.WHEELS) == place and wanted["sha256"] not in have
        ]
        if lacking:
            os.makedirs(store.root(place), mode=0o755, exist_ok=True)
            space.require(store.root(place), sum(lacking) + spec["spare"], spec.get("what") or "what lacks")


def check(wanted: dict) -> None:
    """See that a file is right, or gone, or a part with holes. What a model's directory has is taken into the store."""
    path, sha256 = store.at(wanted), wanted["sha256"]
    source = path if os.path.exists(path) else elsewhere(wanted)
    if source is None:
        return
    try:
        with store.held(sha256, wanted.get("place", store.WHEELS)):
            if not os.path.exists(source):
                return  # another deploy was at it
            if pieces.is_right(source, sha256):
                take_in(source, path)
            else:
                make_good(source, path, wanted)
    except store.Busy:
        pass  # being written anew, with its hash checked


def take_in(source: str, path: str) -> None:
    if source != path:
        os.link(source, path)
        files.sync_directory(os.path.dirname(path))
    pieces.whole(path)


def make_good(source: str, path: str, wanted: dict) -> None:
    """Keep what is good of a damaged file. One that lies in a model's directory only is left there as it is."""
    filename, size, hashes = wanted["filename"], wanted.get("size"), wanted.get("pieces")
    if source == path and os.stat(path).st_nlink > 1 and wanted.get("place") == store.MODELS:
        model.doubt_those_with(path)
    if not pieces.fit(hashes, size):
        if source == path:
            os.unlink(path)
            pieces.drop_holes(path)
            events.log("{} was damaged on this box and is removed".format(filename))
        return
    holes = pieces.open_up(source, path, int(size or 0), list(hashes or []))
    if not holes:
        pieces.settle(path, wanted["sha256"], size, hashes)
    bad = pieces.total(holes)
    if bad == size:
        events.log("{} was damaged on this box and is removed".format(filename))
    else:
        events.log("{} was damaged on this box: {:.1f} MiB of it come again".format(filename, bad / 2**20))


def elsewhere(wanted: dict) -> Optional[str]:
    """The file in a model's directory, of its right size; a part of it is taken over into the store.

    Raises Failure for a place that is not below the models.
    """
    path = store.at(wanted)
    if pieces.read(path, wanted.get("size")) is not None:
        return None  # it was found there before, and is being made good
    models = os.path.dirname(store.MODELS_ROOT)
    for relative in wanted.get("at") or ():
        at = os.path.normpath(os.path.join(models, relative))
        if not at.startswith(models + os.sep):
            raise Failure("{!r} is no place below {}".format(relative, models), "report this")
        if os.path.isfile(at) and not os.path.islink(at) and os.path.getsize(at) == wanted.get("size"):
            return at
        part = at + store.PART  # of a version that fetched models into a directory of their own
        if os.path.isfile(part) and not store.part_size(path) and not os.path.lexists(path + store.PART):
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            os.replace(part, path + store.PART)
    return None
