"""Free memory of cards, and who holds the rest: asked by the start of a service as its own user, and by activations."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple, Optional, Sequence

MIB = 1 << 20


class Unknown(Exception):
    """NVML tells nothing here; the message says why."""


class Holder(NamedTuple):
    """A process on a card; `mib` is None where the driver does not say, `unit` for what systemd did not start."""

    pid: int
    mib: Optional[int]
    name: str
    user: str
    unit: Optional[str]

    def __str__(self) -> str:
        size = "" if self.mib is None else "{} MiB, ".format(self.mib)
        return "{} (pid {}, {}user {}{})".format(
            self.name, self.pid, size, self.user, ", " + self.unit if self.unit else ""
        )


class Card(NamedTuple):
    """`number`: NVML's index; `holders`: the largest first."""

    number: int
    free_mib: int
    holders: list


def short(gpus: Sequence[dict], leaving: Sequence[str] = ()) -> list:
    """A line for each card that has less free than it needs, with who holds the rest; none when there is enough.

    + gpus: [{"uuid", "need_mib"}]
    + leaving: units that will have stopped by then: what they hold counts as free
    Raises Unknown when NVML cannot be asked.
    """
    found = cards([gpu["uuid"] for gpu in gpus])
    lines = []
    for gpu in gpus:
        card = found.get(gpu["uuid"])
        if card is None:
            lines.append("{} is not there: it does not answer, or has fallen off the bus".format(gpu["uuid"]))
            continue
        going = [holder for holder in card.holders if holder.unit in leaving]
        free = card.free_mib + sum(holder.mib or 0 for holder in going)
        if free < gpu["need_mib"] and not any(holder.mib is None for holder in going):
            staying = [str(holder) for holder in card.holders if holder not in going]
            held = "held by " + "; ".join(staying) if staying else "no process that can be seen holds the rest"
            lines.append(
                "GPU {} has {} MiB free, {} MiB are needed: {}".format(card.number, free, gpu["need_mib"], held)
            )
    return lines


def cards(uuids: Sequence[str]) -> dict:
    """{uuid: Card} of those that answer. Raises Unknown."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # no library, no driver, or one that is not what pynvml expects
        raise Unknown("NVML does not answer ({})".format(error))
    found = {}
    for uuid in uuids:
        try:
            found[uuid] = read(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
        except Exception:  # noqa: S112 - a card that does not answer is not there
            continue
    return found


def read(pynvml: Any, handle: Any) -> Card:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    except Exception:  # of an older driver
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    holders = {}
    for ask in (pynvml.nvmlDeviceGetGraphicsRunningProcesses, pynvml.nvmlDeviceGetComputeRunningProcesses):
        try:
            processes = ask(handle)
        except Exception:  # a card that does not tell
            processes = []
        for process in processes:
            used = process.usedGpuMemory
            holders[process.pid] = describe(process.pid, None if used is None else used // MIB)
    largest = sorted(holders.values(), key=lambda holder: (-(holder.mib or 0), holder.pid))
    return Card(pynvml.nvmlDeviceGetIndex(handle), memory.free // MIB, largest)


def describe(pid: int, mib: Optional[int], proc: str = "/proc") -> Holder:
    """Who a process is; one that is gone, or of another container, keeps its number only."""
    folder = os.path.join(proc, str(pid))
    unit = re.search(r"/([^/\n]+\.service)", text(folder + "/cgroup"))
    return Holder(
        pid, mib, text(folder + "/comm").strip() or "a process", owner(folder), unit.group(1) if unit else None
    )


def owner(path: str) -> str:
    try:
        number = os.stat(path).st_uid
    except OSError:
        return "unknown"
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except OSError:
        return ""
