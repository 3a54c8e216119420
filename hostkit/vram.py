"""Memory of cards and who holds it: read from NVML, no more than that, and told in words.

Asked by the start of a service as its own user (`short`), and by hostkit.vram_check before anything is stopped.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Sequence

from hostkit import listeners, nvml
from hostkit.guard import Tell, Untold
from hostkit.roots import Roots


class Unknown(Exception):
    """NVML tells nothing here; the message says why."""


def short(gpus: Sequence[dict]) -> List[str]:
    """A line for each card that has less free than it needs, with who holds the rest; none when there is enough.

    + gpus: [{"uuid", "need_mib"}]
    Raises Unknown when NVML cannot be asked.
    """
    try:
        found = {card["uuid"]: card for card in read([gpu["uuid"] for gpu in gpus], Untold())["gpus"]}
    except Exception as error:  # no library, no driver, or one that is not what pynvml expects
        raise Unknown("NVML does not answer ({})".format(error))
    lines = []
    for gpu in gpus:
        card = found.get(gpu["uuid"])
        if card is None or card["memory_free_mib"] is None:
            lines.append("{} is not there: it does not answer, or has fallen off the bus".format(gpu["uuid"]))
        elif card["memory_free_mib"] < gpu["need_mib"]:
            holders = "; ".join(described(process, Roots()) for process in largest_first(card["processes"]))
            held = "held by " + holders if holders else "no process that can be seen holds the rest"
            lines.append(
                "GPU {} has {} MiB free, {} MiB are needed: {}".format(
                    card["index"], card["memory_free_mib"], gpu["need_mib"], held
                )
            )
    return lines


def read(uuids: Sequence[str], tell: Tell) -> Dict[str, Any]:
    """{"gpus": those that answer, "errors": [text]}; a card has `index`, `uuid`, its memory and its processes.

    Raises what loading NVML and nvmlInit raise.
    """
    tell.doing("loading the library")
    import pynvml

    tell.doing("nvmlInit")
    pynvml.nvmlInit()
    ask, roots, found = nvml.Asker(pynvml, tell), Roots(), []
    for uuid in uuids:
        ask.about = uuid
        handle = ask("nvmlDeviceGetHandleByUUID", uuid)
        if handle is None:
            continue
        index, told = ask("nvmlDeviceGetIndex", handle), nvml.memory(ask, handle)
        found.append(
            {
                "index": index,
                "uuid": uuid,
                "memory_mib": told.total // nvml.MIB if told else None,
                "memory_used_mib": told.used // nvml.MIB if told else None,
                "memory_free_mib": told.free // nvml.MIB if told else None,
                "processes": nvml.processes(ask, roots, handle),
            }
        )
    return {"gpus": found, "errors": ask.errors()}


def largest_first(processes: Sequence[dict]) -> List[Dict[str, Any]]:
    return sorted(processes, key=lambda process: (-(process["memory_mib"] or 0), process["pid"]))


def described(process: dict, roots: Roots) -> str:
    """`python3 (pid 4242, 9000 MiB, user bob, comfyui.service)`.

    The size is left out where the driver does not say it, the unit of what systemd did not start; of a process that is
    gone, or of another container, only its number is known.
    """
    pid, size = process["pid"], process["memory_mib"]
    words = ["pid {}".format(pid), "" if size is None else "{} MiB".format(size), "user " + owner(pid, roots)]
    name = listeners.command_of(roots, pid) or process.get("name") or "a process"
    return "{} ({})".format(name, ", ".join(filter(None, [*words, listeners.unit_of(roots, pid)])))


def owner(pid: int, roots: Roots) -> str:
    try:
        number = os.stat(roots.path("/proc/{}".format(pid))).st_uid
    except OSError:
        return "unknown"
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
