"""What happened on this box, for `gpufleet history` and `gpufleet logs`: events of ours, and what a service wrote."""

from __future__ import annotations

import json
import os
from typing import Iterator, List, Optional

from hostkit import state, unit_log

BLOCK = 1 << 16  # bytes read at once, from the end


def run(spec: dict) -> dict:
    """The last events and the last lines of a service's log; nothing is changed.

    + lines: how many events at most; + log: how many lines of the log
    + instance: only of this one; None: events of all, and no log
    Returns {"events": [one mapping each, oldest first], "log": [text]}.
    """
    name = spec.get("instance")
    log = unit_log.last([name], spec.get("log") or 0) if name else []
    return {"events": last(spec.get("lines") or 0, name), "log": log}


def last(count: int, name: Optional[str]) -> List[dict]:
    """The last `count` events, oldest first; a line that is no event (torn by a power cut) is left out."""
    found: List[dict] = []
    for raw in backwards(state.JOURNAL):
        if len(found) >= count:
            break
        try:
            event = json.loads(raw.decode("utf-8", "replace"))
        except ValueError:
            continue
        if isinstance(event, dict) and (name is None or event.get("instance") == name):
            found.append(event)
    return found[::-1]


def backwards(path: str) -> Iterator[bytes]:
    """The lines of a file, the last first, so that a journal of years costs no more than what is asked for."""
    try:
        handle = open(path, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return
    with handle:
        place, rest = handle.seek(0, os.SEEK_END), b""
        while place > 0:
            step = min(BLOCK, place)
            place -= step
            handle.seek(place)
            first, *lines = (handle.read(step) + rest).split(b"\n")
            for text in reversed(lines):
                if text:
                    yield text
            rest = first
        if rest:
            yield rest
