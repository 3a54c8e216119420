"""What the box remembers of itself: the gated release of each instance, its activation, and a journal of what happened.

Both files are safe on the disk before the caller goes on: what is done next can be cut off at any moment.
"""

from __future__ import annotations

import json
import os
import time

from hostkit import events, files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

STATE = os.path.join(files.STATE, "state.json")
JOURNAL = os.path.join(files.STATE, "journal.jsonl")
TAIL_BYTES = 65536  # of the journal, where the last lines of an activation are


def reached(moment: str) -> None:
    """Called around writes, for tests that stop the process there."""


def load(path: Optional[str] = None) -> dict:
    """{"schema": 1, "instances": {name: {"gated": digest, "stale": bool, ...}}}; empty when absent or unreadable.

    An unreadable state means only that instances are gated once more.
    """
    try:
        return read(path or STATE)
    except (OSError, ValueError):
        return empty()


def read(path: str) -> dict:
    """As `load`. Raises OSError, and ValueError when it says nothing that is a state."""
    with open(path, encoding="utf-8") as handle:
        found = json.load(handle)
    if not isinstance(found, dict) or not isinstance(found.get("instances"), dict):
        raise ValueError("{} is no state".format(path))
    return {**empty(), "instances": {name: item for name, item in found["instances"].items() if isinstance(item, dict)}}


def empty() -> dict:
    return {"schema": 1, "instances": {}}


def instance(name: str) -> dict:
    return dict(load()["instances"].get(name, {}))


def update(name: str, **fields: object) -> None:
    """Raises OSError when it cannot be read or written. One that says nothing is not written over: it goes aside."""
    try:
        state = read(STATE)
    except FileNotFoundError:
        state = empty()
    except ValueError:
        set_aside()
        state = empty()
    state["instances"].setdefault(name, {}).update(fields)
    reached("before state")
    files.write(STATE, (json.dumps(state, indent=1, sort_keys=True) + "\n").encode())
    reached("state")


def drop(name: str) -> None:
    """Forget an instance. Raises OSError when the state cannot be written."""
    state = load()
    if state["instances"].pop(name, None) is not None:
        files.write(STATE, (json.dumps(state, indent=1, sort_keys=True) + "\n").encode())


def set_aside() -> None:
    """Keep a state that cannot be read: who was held stands in it. Raises OSError."""
    aside = STATE + ".unreadable"
    os.replace(STATE, aside)
    files.sync_directory(files.STATE)
    events.log("{} cannot be read; it is {} now, and nothing is held any more".format(STATE, aside))
    journal("state-lost", kept=aside)


def doubt(names: list) -> None:
    """Note that what these instances run on is put there anew: whatever happens next, they are restarted and gated."""
    for name in names:
        if instance(name).get("gated"):
            update(name, stale=True)


def passed(known: dict) -> list:
    """The releases of an instance that passed their gate, the last first, each once; `known`: see `instance`."""
    lines = [line.get("digest") for line in reversed(known.get("history") or [])]
    return [digest for digest in dict.fromkeys([known.get("gated"), *lines]) if digest]


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def journal(event: str, **fields: object) -> None:
    """Append one line, on the disk when this returns; a torn last line of a power cut does not spoil the next."""
    line = json.dumps({"at": now(), "event": event, **fields}, sort_keys=True)
    os.makedirs(files.STATE, exist_ok=True)
    new = not os.path.exists(JOURNAL)
    with open(JOURNAL, "a+b") as handle:
        handle.seek(0, os.SEEK_END)
        if handle.tell():
            handle.seek(-1, os.SEEK_END)
            if handle.read(1) != b"\n":
                line = "\n" + line
        handle.write((line + "\n").encode())
        handle.flush()
        os.fsync(handle.fileno())
    if new:
        files.sync_directory(files.STATE)
    reached("journal")


def journaled(event: str, **fields: object) -> bool:
    """Whether one of the last lines of the journal says this already."""
    try:
        with open(JOURNAL, "rb") as handle:
            handle.seek(0, os.SEEK_END)
            handle.seek(max(0, handle.tell() - TAIL_BYTES))
            lines = handle.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return False
    wanted = {"event": event, **fields}.items()
    return any(wanted <= parsed(line).items() for line in lines if '"{}"'.format(event) in line)


def parsed(line: str) -> dict:
    """A line's plain values; nothing of one that is torn."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    plain = (str, int, float, bool, type(None))
    return {key: value for key, value in found.items() if isinstance(value, plain)} if isinstance(found, dict) else {}
