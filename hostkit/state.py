"""What the box remembers of itself: the gated release of each instance, and a journal of what happened."""

from __future__ import annotations

import json
import os
import time
from typing import Optional

from hostkit import files

STATE = os.path.join(files.STATE, "state.json")
JOURNAL = os.path.join(files.STATE, "journal.jsonl")


def load(path: Optional[str] = None) -> dict:
    """{"schema": 1, "instances": {name: {"gated": digest, "stale": bool, ...}}}; empty when absent or unreadable.

    An unreadable state means only that instances are gated once more.
    """
    try:
        with open(path or STATE, encoding="utf-8") as handle:
            loaded = json.load(handle)
        if isinstance(loaded, dict) and isinstance(loaded.get("instances"), dict):
            known = {name: item for name, item in loaded["instances"].items() if isinstance(item, dict)}
            return {"schema": 1, "instances": known}
    except (OSError, ValueError):
        pass
    return {"schema": 1, "instances": {}}


def instance(name: str) -> dict:
    return dict(load()["instances"].get(name, {}))


def update(name: str, **fields: object) -> None:
    state = load()
    state["instances"].setdefault(name, {}).update(fields)
    files.write(STATE, (json.dumps(state, indent=1, sort_keys=True) + "\n").encode())


def doubt(names: list) -> None:
    """Note that what these instances run on is put there anew: whatever happens next, they are restarted and gated."""
    for name in names:
        if instance(name).get("gated"):
            update(name, stale=True)


def journal(event: str, **fields: object) -> None:
    """Append one line; a torn last line of a power cut does not spoil the next."""
    os.makedirs(files.STATE, exist_ok=True)
    line = json.dumps(
        {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event, **fields}, sort_keys=True
    )
    with open(JOURNAL, "a+b") as handle:
        handle.seek(0, os.SEEK_END)
        if handle.tell():
            handle.seek(-1, os.SEEK_END)
            if handle.read(1) != b"\n":
                line = "\n" + line
        handle.write((line + "\n").encode())
