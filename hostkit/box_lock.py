"""One change at a time on a box.

A controller that was killed can leave its command running here: a second deploy waits for it instead of working in
the same directories. Children inherit the lock, so it is held until the last of them is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from hostkit import events
from hostkit.errors import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

PATH = "/run/gpufleet.lock"  # not in /run/lock, where anybody may put a file first
WAIT_SECONDS = 900
# What was cut off is finished however long another change takes before: nobody else would until the next boot.
PATIENT = ("resume",)


@contextlib.contextmanager
def box_lock(verb: str, path: str = PATH, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold the box's lock; waits for another holder, and raises Failure naming it after `wait_seconds`.

    `resume` waits for ever.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(descriptor, True)
    deadline = time.monotonic() + wait_seconds
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "another deploy"
            if time.monotonic() >= deadline and verb not in PATIENT:
                raise Failure(
                    "another change is still running on this box ({})".format(holder),
                    "wait for it to end, or end that process, then deploy again",
                )
            if not told:
                events.log("waiting for another change on this box: {}".format(holder))
                told = True
            time.sleep(0.5)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, "gpufleet {}, pid {}\n".format(verb, os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def let_go(path: str = PATH) -> None:
    """For a child that may outlive its parent: close its copy of the lock."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink("/proc/self/fd/" + name) == path:
                os.close(int(name))
