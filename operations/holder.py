"""Whoever holds the lock of the fleet: said to others, and found to be gone."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpufleet.errors import LOCKED
from operations.run import Stop, session


def refusal(box: str, held: Mapping[str, Any]) -> Stop:
    """The end of a deploy that another run has locked out. No box was changed."""
    for name in session.outcomes:
        session.of(name).untouched = session.of(name).untouched or "the fleet is locked"
    inventory = session.fleet.inventory if session.fleet else "INVENTORY"
    return Stop(
        f"{box} is locked by {kind(held)}, and no box was changed: {words(held)}. Wait for its end; "
        f"if it is gone, `gpufleet unlock {inventory}`",
        LOCKED,
    )


def kind(held: Mapping[str, Any]) -> str:
    """`another deploy`, `a rollback`"""
    verb = str(held["what"]).split(" ")[0]
    return f"a {verb}" if verb in ("rollback", "restart") else "another deploy"


def words(held: Mapping[str, Any]) -> str:
    return f"{held['who']} from {held['host']} since {held['since']}, run {held['run']} ({held['what']})"


def is_dead(held: Mapping[str, Any]) -> bool:
    """Whether the holder was a process of this very machine that is no more."""
    if str(held["id"]).rpartition("-")[0] != place():
        return False
    try:
        os.kill(int(held["pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, TypeError, ValueError):
        return False
    return False


def place() -> str:
    """This machine and, in containers, this one's processes: one process number means one process there."""
    parts = [socket.gethostname(), "", ""]
    with suppress(OSError):
        parts[1] = Path("/etc/machine-id").read_text(encoding="utf-8")
    with suppress(OSError):
        parts[2] = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
