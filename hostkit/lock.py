"""The lock of the whole fleet, as this box keeps it: which deploy holds it, since when, until when.

It is a file with a lease, not a lock of the kernel: its holder is on another machine, and renews it while it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time

from hostkit import files, state
from hostkit.errors import Failure
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, Optional

    Lock = Dict[str, Any]

PATH = os.path.join(files.STATE, "lock.json")
GUARD = "/run/gpufleet-fleet.lock"  # held for a moment by whoever reads and writes PATH
HOLDER = ("who", "host", "pid", "run", "what")


def run(spec: dict) -> dict:
    """Take, renew, release or break the lock.

    + action: `take` (a free one, one whose lease is over, or one's own), `renew` and `release` (one's own),
      `break` (whoever has it; with `id` only that one)
    + id: of the lock, unlike any other; holder: {"who", "host", "pid", "run", "what"}; seconds: the lease
    Returns {"held": whether it is the caller's now, "lock": the lock there is now or None}; of `break` also `broken`,
    the lock that is gone.
    """
    action, mine = spec["action"], spec.get("id")
    with guard():
        there = read(Roots())
        own = bool(there and there["id"] == mine)
        if action == "take" and (own or not there):
            since = there["since"] if there and own else moment(time.time())
            there = _write({"id": mine, **{key: spec["holder"].get(key) for key in HOLDER}, "since": since}, spec)
            if not own:
                state.journal("locked", **{key: there[key] for key in HOLDER})
        elif action == "renew" and there and own:
            there = _write(there, spec)
        elif (action == "release" and there and own) or (action == "break" and there and mine in (None, there["id"])):
            _remove()
            how = "released" if action == "release" else "broken"
            state.journal("unlocked", how=how, **{key: there[key] for key in HOLDER})
            return {"held": False, "lock": None, "broken": there if action == "break" else None}
        elif action not in ("take", "renew", "release", "break"):
            raise Failure("the lock was asked for {!r}".format(action), "use take, renew, release or break")
        return {"held": bool(there and there["id"] == mine), "lock": there, "broken": None}


def read(roots: Roots) -> Optional[Lock]:
    """The lock that is held now; None when there is none, its lease is over, or the file is damaged."""
    try:
        with open(roots.path(PATH), encoding="utf-8") as handle:
            found = json.load(handle)
        if all(key in found for key in ("id", "since", "until", *HOLDER)) and found["until"] > moment(time.time()):
            return dict(found)
    except (OSError, ValueError, TypeError):
        pass
    return None


def moment(seconds: float) -> str:
    """Such moments sort as text."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


@contextlib.contextmanager
def guard() -> Iterator[None]:
    descriptor = os.open(GUARD, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(lock: Lock, spec: dict) -> Lock:
    lock = {**lock, "until": moment(time.time() + spec["seconds"])}
    files.write(PATH, (json.dumps(lock, indent=1, sort_keys=True) + "\n").encode())
    return lock


def _remove() -> None:
    os.unlink(PATH)
    files.sync_directory(files.STATE)
