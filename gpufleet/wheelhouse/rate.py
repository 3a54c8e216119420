"""How fast files came to this controller the last time, kept in its store: what a first run foretells is told by it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

FILE = "rate.json"
TELLING = 32 << 20  # bytes: of fewer the waits between files are most of the time


def keep(root: Path, came: int, seconds: float) -> None:
    """Remember what came from outside, when it was enough to tell. Without a word where the store cannot be written."""
    if came >= TELLING and seconds > 0:
        with suppress(OSError):
            aside = root / f".{FILE}.part"
            aside.write_text(json.dumps({"bytes": came, "seconds": round(seconds, 1)}), encoding="utf-8")
            aside.replace(root / FILE)


def last(root: Path) -> float | None:
    """Bytes per second of the last fetch; None when there was none, or nobody can read of it."""
    try:
        found = json.loads((root / FILE).read_text(encoding="utf-8"))
        rate = found["bytes"] / found["seconds"]
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return None
    return float(rate) if rate > 0 else None
