"""What the kit says while it works: one JSON object a line, so that the controller can follow live."""

from __future__ import annotations

import json
import sys


def emit(event: str, **fields: object) -> None:
    """Write one event line. A reader that has gone away is no reason to stop half way."""
    try:
        sys.stdout.write(json.dumps({"event": event, **fields}, sort_keys=True) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        pass


def log(message: str) -> None:
    emit("log", message=message)


def result(fields: dict) -> None:
    emit("result", **fields)


def error(cause: str, remedy: str, everywhere: bool = False) -> None:
    """`everywhere`: see hostkit.errors; said only where it is so."""
    emit("error", cause=cause, remedy=remedy, **({"everywhere": True} if everywhere else {}))
