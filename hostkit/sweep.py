"""Frees what `garbage` found: looked for again under the box's lock, and only of what the user was shown."""

from __future__ import annotations

import os
import shutil

from hostkit import events, files, garbage, named, state


def run(spec: dict) -> dict:
    """Remove the items whose path is in `paths`, and that are garbage now; models only with `models`.

    Nothing of the caller's list is trusted: it can only leave out. Returns {"removed": [paths], "bytes", "free"}.
    """
    shown = set(spec["paths"])
    items, _ = garbage.everything(named.read())
    going = [item for item in items if item["path"] in shown and (item["kind"] != "model" or spec["models"])]
    for item in going:
        events.log("removing {} ({:.1f} MiB)".format(item["name"], item["bytes"] / 2**20))
        remove(item["path"])
    if going:
        state.journal("swept", paths=[item["path"] for item in going], bytes=sum(item["bytes"] for item in going))
    return {
        "removed": [item["path"] for item in going],
        "bytes": sum(item["bytes"] for item in going),
        "free": garbage.free_bytes(),
    }


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
