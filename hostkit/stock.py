"""What of these files the box's store has, whole or in part."""

from __future__ import annotations

import os

from hostkit import events, files, store


def run(spec: dict) -> dict:
    """Look for `files` [{filename, sha256, size}].

    + check: read each file and remove those whose hash is wrong; without it name and size are believed
    Returns {"have": [sha256], "parts": {sha256: bytes}}.
    """
    have, parts = [], {}
    for wanted in spec["files"]:
        filename, sha256 = wanted["filename"], wanted["sha256"]
        if spec.get("check"):
            drop_damaged(filename, sha256)
        if store.has(filename, sha256, wanted.get("size")):
            have.append(sha256)
        elif store.part_size(filename, sha256):
            parts[sha256] = store.part_size(filename, sha256)
    return {"have": have, "parts": parts}


def drop_damaged(filename: str, sha256: str) -> None:
    at = store.path(filename, sha256)
    try:
        if os.path.exists(at):
            with store.held(sha256):
                if files.sha256(at) not in (sha256, None):
                    os.unlink(at)
                    events.log("{} was damaged on this box and is removed".format(filename))
    except store.Busy:
        pass  # being written anew, with its hash checked
