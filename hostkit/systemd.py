"""The few things asked of systemd."""

from __future__ import annotations

import os
import time

from hostkit import files, shell
from hostkit.errors import Failure

TRIES, TRY_SECONDS = 4, 3
WANTS = "multi-user.target.wants"
PROPERTIES = (
    "ActiveState",
    "SubState",
    "MainPID",
    "Job",
    "NRestarts",
    "InvocationID",
    "ControlGroup",
    "ExecMainStartTimestampMonotonic",
)


def show(unit: str) -> dict:
    """{"active", "sub", "pid", "job", "restarts", "invocation", "group", "since"} of a unit; inactive when unknown.

    + job: systemd has something of the unit still to do, such as the start after the stop of a restart
    + restarts: starts that systemd made by itself, after a crash, since somebody asked for the last one
    + invocation: which start it is, as the journal's lines of it have it; empty before the first
    + since: when its process was started, by the monotonic clock; 0 before the first
    + group: its control group below /sys/fs/cgroup; empty while nothing of it runs
    """
    output = asked("show", "--property=" + ",".join(PROPERTIES), unit)
    found = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    return {
        "active": found.get("ActiveState", "inactive"),
        "sub": found.get("SubState", ""),
        "pid": int(found.get("MainPID") or 0) or None,
        "job": found.get("Job", "0") not in ("", "0"),
        "restarts": int(found.get("NRestarts") or 0),
        "invocation": found.get("InvocationID", ""),
        "group": found.get("ControlGroup", ""),
        "since": int(found.get("ExecMainStartTimestampMonotonic") or 0) / 1e6,
    }


def restart(unit: str) -> None:
    # Without waiting: the gate follows the start and can tell more than systemctl's exit status.
    forget(unit)
    systemctl("restart", "--no-block", unit)


def stop(unit: str) -> None:
    """Stop a unit; one that systemd does not know is stopped already."""
    systemctl("stop", unit, allowed=show(unit)["active"] == "inactive")


def forget(unit: str) -> None:
    """Drop what systemd remembers of a unit's last failure."""
    systemctl("reset-failed", unit, allowed=True)


def enable(unit: str) -> None:
    systemctl("enable", "--quiet", unit)
    sync()


def take_up(unit: str) -> None:
    """Have systemd start a unit at boot, and read all units as they are now.

    Always: by `NeedDaemonReload` it does not know of a first drop-in, of a file that is older than the one it read, nor
    that a unit was enabled again. And once: `enable` alone reads them, too, and before it is known what else changed.
    """
    systemctl("enable", "--quiet", "--no-reload", unit)
    sync()
    reload()


def disable(unit: str) -> None:
    systemctl("disable", "--quiet", unit, allowed=True)
    sync()


def sync() -> None:
    """Make what starts at boot survive a power cut: systemctl only writes the links."""
    for directory in (files.UNITS, os.path.join(files.UNITS, WANTS)):
        if os.path.isdir(directory):
            files.sync_directory(directory)


def reload() -> None:
    systemctl("daemon-reload")


def log_since(unit: str, began: float, lines: int = 400) -> list:
    """The last lines a unit wrote to the journal since `began` (seconds since the epoch), its restarts included."""
    since = "--since=@{:.0f}".format(began)
    try:
        return shell.run(
            ["journalctl", "--no-pager", "-q", "-o", "cat", "-n", str(lines), since, "-u", unit]
        ).splitlines()
    except shell.Ended:
        return []


def asked(*arguments: str) -> str:
    """Ask systemd something, a few times over: while a box compiles or loads a model, it may not answer in time."""
    for _ in range(TRIES - 1):
        try:
            return systemctl(*arguments)
        except Failure:
            time.sleep(TRY_SECONDS)
    return systemctl(*arguments)


def systemctl(*arguments: str, allowed: bool = False) -> str:
    """Run systemctl; `allowed`: a failure means nothing (there was nothing to undo)."""
    try:
        return shell.run(["systemctl", "--no-pager"] + list(arguments), timeout=180)
    except shell.Ended as ended:
        if allowed:
            return ended.tail
        raise Failure(
            "systemctl {} failed: {}".format(" ".join(arguments), ended.tail.splitlines()[-1] if ended.tail else ""),
            "look at `systemctl status` of that unit on the box",
        )
