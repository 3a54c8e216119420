"""The system user gpufleet, when gpufleet leaves a box."""

from __future__ import annotations

import grp
import os
import pwd
import time
from typing import List, Optional

from hostkit import events, files, remove_places, shell
from hostkit.errors import Failure

SHM = "/dev/shm"
NOBODY = "/usr/sbin/nologin"
SECONDS = 20  # the workers of an engine go on for some


def find() -> Optional[pwd.struct_passwd]:
    """The user as gpufleet made it; None where there is none, or it is one of the owner's."""
    try:
        user = pwd.getpwnam(files.USER)
    except KeyError:
        return None
    return user if (user.pw_dir, user.pw_shell) == (files.STATE, NOBODY) else None


def exists() -> bool:
    try:
        pwd.getpwnam(files.USER)
    except KeyError:
        return False
    return True


def remove() -> None:
    """Take the user away, with what its engines left in /dev/shm. Raises Failure while a process is the user's."""
    user = find()
    if user is None:
        return
    until = time.monotonic() + SECONDS
    while processes(user.pw_uid) and time.monotonic() < until:
        time.sleep(0.2)
    if left := processes(user.pw_uid):
        raise Failure(
            "processes of the user {} run still: {}".format(files.USER, ", ".join(left)),
            "end them (`ps -u {}`), then call `gpufleet remove` again".format(files.USER),
        )
    for path in remove_places.entries(SHM):
        if owner(path) == user.pw_uid:
            remove_places.delete(path)
    events.log("removing the user " + files.USER)
    try:
        shell.run(["userdel", files.USER])
        if has_group():  # as /etc/login.defs has it (USERGROUPS_ENAB)
            shell.run(["groupdel", files.USER])
    except shell.Ended as ended:
        raise Failure(
            "cannot remove the user {}: {}".format(files.USER, ended.tail),
            "see to that, then call `gpufleet remove` again",
        )


def owner(path: str) -> Optional[int]:
    """The user id that a file is of; None of one that is gone."""
    try:
        return os.lstat(path).st_uid
    except OSError:
        return None


def has_group() -> bool:
    try:
        grp.getgrnam(files.USER)
    except KeyError:
        return False
    return True


def processes(uid: int) -> List[str]:
    """`python3 (pid 4242)` for each process of a user."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        folder = "/proc/" + pid
        try:
            if os.stat(folder).st_uid == uid:
                with open(folder + "/comm", encoding="utf-8", errors="replace") as handle:
                    found.append("{} (pid {})".format(handle.read().strip(), pid))
        except OSError:  # it has ended
            continue
    return found
