"""Frees what `garbage` found: looked for again under the box's lock, and only of what the user was shown."""

from __future__ import annotations

import contextlib
import os
import shutil

from hostkit import events, files, garbage, named, state, store


def run(spec: dict) -> dict:
    """Remove the items whose path is in `paths`, and that are garbage now; models only with `models`.

    Nothing of the caller's list is trusted: it can only leave out. Returns {"removed": [paths], "bytes", "free"}.
    """
    shown = set(spec["paths"])
    items, _ = garbage.everything(named.read())
    going = [item for item in items if item["path"] in shown and (item["kind"] != "model" or spec["models"])]
    gone = []
    for item in going:
        events.log("removing {} ({:.1f} MiB)".format(item["name"], item["bytes"] / 2**20))
        try:
            with unwritten(item):
                remove(item["path"])
        except store.Busy:
            events.log("{} is being written now, and is left".format(item["name"]))
        else:
            gone.append(item)
    paths, freed = [item["path"] for item in gone], sum(item["bytes"] for item in gone)
    if gone:
        state.journal("swept", paths=paths, bytes=freed)
    return {"removed": paths, "bytes": freed, "free": garbage.free_bytes()}


def unwritten(item: dict) -> "contextlib.AbstractContextManager":
    """Hold a file of the store against whoever would write it now, which is done without the box's lock."""
    folder, digest = os.path.split(item["path"])
    for place in (store.WHEELS, store.MODELS):
        if folder == store.root(place) and store.SHA256.fullmatch(digest):
            return store.held(digest, place)
    return contextlib.nullcontext()


def remove(path: str) -> None:
    """A directory gets another name first: what is half removed is never taken for whole."""
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
        return
    aside = os.path.join(os.path.dirname(path), ".{}.gone".format(os.path.basename(path).strip(".")))
    if path != aside:
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(path, aside)
        files.sync_directory(os.path.dirname(path))
    shutil.rmtree(aside)
