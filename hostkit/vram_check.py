"""Before anything is stopped: whether each card of an instance will have the memory that it needs.

What our own unit and the leaving ones hold is free once they have stopped. What anybody else holds stays, and so does
what a process that cannot be ended leaves behind: then the instance would be down, and its successor would not start.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Optional, Sequence

from hostkit import box_lock, guard, listeners, vram
from hostkit.errors import Failure
from hostkit.roots import Roots

NVML_SECONDS = 20.0  # without persistence mode the driver wakes each card at the first call
SLACK = 0.03  # of a card's memory: what an older driver counts for itself, and nobody holds
STUCK_LOOKS, STUCK_SECONDS = 3, 0.5
SIGKILL = 1 << 8  # in the masks of /proc/PID/status
REBOOT = "reboot needed: no signal ends it, and the card is not free before"


def check(wanted: list, units: list, running: bool) -> None:
    """Raise Failure unless each card will have its memory.

    + wanted: [{"uuid", "need_mib"}]; units: those that will have stopped; running: whether one of them runs now
    """
    if not wanted:
        return
    gpus, trouble = look([item["uuid"] for item in wanted])
    for item in wanted:
        gpu = gpus.get(item["uuid"])
        if trouble and "no answer within" in trouble:
            raise Failure("the driver does not answer ({})".format(trouble), REBOOT)
        if gpu is None:
            raise Failure(
                "GPU {} is not there{}".format(item["uuid"], " ({})".format(trouble) if trouble else ""),
                "look for Xid in the kernel's log; a card that fell off the bus needs a reboot, or to be reseated",
            )
        card(gpu, item["need_mib"], units, running)


def look(uuids: Sequence[str]) -> "tuple[dict, Optional[str]]":
    """({uuid: what NVML says of the card}, what went wrong). A child asks: a driver that hangs lets go of nobody."""

    def read(tell: guard.Tell) -> "dict[str, Any]":
        box_lock.let_go()  # a child that hangs for ever must not hold the box's lock for ever
        return vram.read(uuids, tell)

    answers, errors = guard.collect([guard.Source("nvml", read, NVML_SECONDS)])
    answer = answers.get("nvml", {})
    said = [error["message"] for error in errors] + list(answer.get("errors", []))
    return {gpu["uuid"]: gpu for gpu in answer.get("gpus", [])}, "; ".join(said) or None


def card(gpu: dict, need_mib: int, units: list, running: bool) -> None:
    """Raise Failure when others hold so much of it that `need_mib` are not left."""
    total, used, processes = gpu["memory_mib"], gpu["memory_used_mib"], gpu["processes"]
    if not total or used is None:
        return
    ours = [process for process in processes if listeners.unit_of(Roots(), process["pid"]) in units]
    others = [process for process in processes if process not in ours]
    told = all(process["memory_mib"] is not None for process in processes)
    unowned = 0
    # In a container NVML names no processes: while ours runs and is not named, nobody can tell whose memory it is.
    if told and (ours or not running):
        unowned = used - sum(process["memory_mib"] for process in processes)
        unowned = unowned if unowned > total * SLACK else 0
    stuck = [process for process in ours if is_stuck(process["pid"], killed=True)]
    taken = sum(process["memory_mib"] or 0 for process in others + stuck) + unowned
    if total - taken >= need_mib:
        return
    name = "GPU {}".format(gpu["index"])
    cause = "{} has {} MiB for {} MiB that are needed".format(name, total - taken, need_mib)
    holders = vram.largest_first(others + stuck)
    if not holders:
        raise Failure("{}: {} MiB are held by no process".format(cause, unowned), REBOOT)
    dead = stuck + [process for process in others if is_stuck(process["pid"])]
    raise Failure(
        "{}: held by {}".format(cause, "; ".join(vram.described(process, Roots()) for process in holders)),
        REBOOT if dead else "stop {}, then deploy again".format(stoppable(holders[0])),
    )


def stoppable(process: dict) -> str:
    unit = listeners.unit_of(Roots(), process["pid"])
    return "it (`systemctl stop {}`)".format(unit) if unit and unit.endswith(".service") else "that process"


def is_stuck(pid: int, killed: bool = False) -> bool:
    """Whether a process that holds memory can be ended by no signal: gone but for what it holds, or deep in the kernel.

    + killed: only when it was already sent SIGKILL; a process that waits for a disk is in the same state for a moment
    """
    for number in range(STUCK_LOOKS):
        if number:
            time.sleep(STUCK_SECONDS)
        text = Roots().text_or_none("/proc/{}/status".format(pid))
        if text is None:
            return not killed and not os.path.exists("/proc/{}".format(pid))
        state = (re.findall(r"^State:\s+(\w)", text, re.MULTILINE) or ["?"])[0]
        if state in "ZX":
            return True
        masks = [int(mask, 16) for mask in re.findall(r"^(?:SigPnd|ShdPnd):\s+([0-9a-f]+)", text, re.MULTILINE)]
        if state != "D" or (killed and not any(mask & SIGKILL for mask in masks)):
            return False
    return True
