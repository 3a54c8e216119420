"""Runs on one inventory from one controller, also for boxes that have none in common: one at a time.

What they would take a lock of has no box in common then, and yet they would count the boxes that may be down each for
itself. Two controllers are told apart only by the boxes' locks.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

FILE = ".deploying"

# Open as long as this process lives, and with it the claim.
_kept: list[int] = []


def other(folder: Path, holder: Mapping[str, Any]) -> dict[str, Any] | None:
    """Claim the inventory whose reports lie in `folder`; who has it, when another process does.

    Where the folder cannot be written to nobody is kept out: the boxes' locks remain.
    """
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(dict(holder)).encode(), 0)
        _kept.append(descriptor)
    return None


def let_go() -> None:
    """Before the end of this process, which lets go of it, too."""
    while _kept:
        os.close(_kept.pop())


def _holder(descriptor: int) -> dict[str, Any]:
    """What the other one wrote; it may be about to."""
    unknown = dict.fromkeys(("who", "host", "since", "run", "what"), "unknown")
    try:
        return {**unknown, **json.loads(os.pread(descriptor, 1 << 16, 0))}
    except (ValueError, TypeError):
        return unknown
    finally:
        os.close(descriptor)
