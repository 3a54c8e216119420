"""What the kit says while it works: one JSON object a line, so that the controller can follow live.

In systemd's journal, where people read it, the same is a line of text.
"""

from __future__ import annotations

import json
import os
import sys

plain = False


def to_journal() -> bool:
    """Whether standard output is systemd's journal (systemd.exec(5): JOURNAL_STREAM); a pipe or a file is not."""
    try:
        at = os.fstat(1)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == "{}:{}".format(at.st_dev, at.st_ino)


def emit(event: str, **fields: object) -> None:
    """Write one event line. A reader that has gone away, or a full /run, is no reason to stop half way."""
    write(json.dumps({"event": event, **fields}, sort_keys=True))


def write(line: str) -> None:
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError:
        pass


def log(message: str) -> None:
    write(message) if plain else emit("log", message=message)


def result(fields: dict) -> None:
    if not plain:
        emit("result", **fields)


def error(cause: str, remedy: str, everywhere: bool = False) -> None:
    """`everywhere`: see hostkit.errors; said only where it is so."""
    if plain:
        write("error: {}. {}".format(cause, remedy))
    else:
        emit("error", cause=cause, remedy=remedy, **({"everywhere": True} if everywhere else {}))
