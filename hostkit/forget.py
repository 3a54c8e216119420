"""Takes files out of the store that are installed now."""

from __future__ import annotations

import os
import shutil

from hostkit import store


def run(spec: dict) -> dict:
    """Remove `files` [{filename, sha256, place}] from the store; one that is being written by another deploy stays.

    Returns {"bytes": what was freed}.
    """
    freed = 0
    for item in spec["files"]:
        path = store.at(item)
        if not os.path.isdir(os.path.dirname(path)):
            continue
        try:
            with store.held(item["sha256"], item.get("place", store.WHEELS)):
                freed += os.path.getsize(path) if os.path.isfile(path) else 0
                shutil.rmtree(os.path.dirname(path), ignore_errors=True)
        except store.Busy:
            continue
    return {"bytes": freed}
