"""After a service ended (ExecStopPost, as its own user): a start that failed is noted for the next one."""

from __future__ import annotations

import os
import time

from hostkit import events, start_note


def run(spec: dict) -> dict:
    """Note how the run ended that `before-start` let begin; systemd tells by $SERVICE_RESULT and $EXIT_STATUS.

    A start has failed when the service ended badly, by itself, within the time it may take to get ready: whether it
    had answered by then nobody has noted, and compiling once too often costs minutes only.
    + unit; state: its folder; start_seconds: how long it may take to get ready
    """
    note = start_note.read(spec["state"])
    if note["began"] is None:  # before-start itself failed, or another deploy's file is not there
        return {"failed": False}
    lasted = time.monotonic() - note["began"]
    good = lasted > spec["start_seconds"]
    result = os.environ.get("SERVICE_RESULT", "success")
    failed = None
    if result != "success" and not good and not stopped(spec["unit"]):
        failed = {
            "result": result,
            "status": os.environ.get("EXIT_STATUS", ""),
            "seconds": round(lasted, 1),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        events.log("the start failed after {:.0f} s: {} {}".format(lasted, result, failed["status"]).rstrip())
    start_note.write(
        spec["state"],
        {"began": None, "failed": failed, "wiped": note["wiped"] and not good, "release": note["release"]},
    )
    return {"failed": failed is not None}


def stopped(unit: str) -> bool:
    """Whether somebody has it stopped or restarted: engines end with all sorts of statuses when they are told to.

    systemd has a job for the unit then, and none while it restarts a service of itself.
    """
    from hostkit import shell

    try:
        return shell.run(["systemctl", "show", "--property=Job", "--value", unit], timeout=5).strip() not in ("", "0")
    except Exception:  # no systemd to ask: it counts as failed
        return False
