"""What the starts of an instance leave for each other, in its own folder: whether the last one failed.

Written by the services' user at the start and the end of each run; lost or torn, it counts as none.
"""

from __future__ import annotations

import json
import os

NAME = "last-start.json"


def read(folder: str) -> dict:
    """{"began": seconds since boot or null, "failed": {...} or null, "wiped": since a good start, "release"}"""
    try:
        with open(os.path.join(folder, NAME), encoding="utf-8") as handle:
            found = json.load(handle)
    except (OSError, ValueError):
        found = None
    note = found if isinstance(found, dict) else {}
    began = note.get("began")
    return {
        "began": began if isinstance(began, (int, float)) else None,
        "failed": note.get("failed") if isinstance(note.get("failed"), dict) else None,
        "wiped": note.get("wiped") is True,
        "release": str(note.get("release") or ""),
    }


def write(folder: str, note: dict) -> None:
    """Not made to survive a power cut: what was not noted is not known."""
    path = os.path.join(folder, NAME)
    with open(path + ".new", "w", encoding="utf-8") as handle:
        json.dump(note, handle, sort_keys=True)
    os.replace(path + ".new", path)
