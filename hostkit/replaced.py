"""Units of the owner's whose place an instance takes: stopped by its activation, disabled once its gate is passed.

Of each is kept what it was before: {"enabled": bool, "active": bool, "ports": [numbers], "path": of its file}. So it
can be started again as it was when the activation fails, and given back when gpufleet leaves the box. Its files are
never touched, and until the gate is passed neither is what starts it at boot.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Iterable, Iterator, Optional

from hostkit import events, listeners, scripts, state, systemd, taken
from hostkit.errors import Failure
from hostkit.roots import Roots

PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "UnitFileState", "FragmentPath", "NRestarts", "Job"),
    *("SourcePath", "WantedBy"),  # see hostkit.scripts
)
ENDED = ("inactive", "failed")
ANSWER_SECONDS, LOOK_SECONDS = 1800, 1.0  # an engine that loads a large model from a disk takes minutes
CRASHES = 3  # starts that systemd made by itself: then it does not come up


def look(unit: str) -> dict:
    """{"id", "there", "active", "state", "job", "enabled", "script", "path", "restarts"} of a unit, as the system's own
    manager has it.

    + id: its name, where `unit` is another name of it; + active: it runs, or is about to
    + job: it is to be started or stopped, and waits for that, as at a boot
    + script: it was made of a script of init.d
    """
    output = systemd.asked("show", "--property=" + ",".join(PROPERTIES), unit)
    found = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    active, job = found.get("ActiveState") or "inactive", found.get("Job", "0") not in ("", "0")
    return {
        "id": found.get("Id") or unit,
        "there": found.get("LoadState") not in (None, "", "not-found"),
        "active": active not in ENDED or job,
        "state": active,
        "job": job,
        "enabled": scripts.file_state(found).startswith("enabled"),
        "script": scripts.is_one(found),
        "path": found.get("FragmentPath") or None,
        "restarts": int(found.get("NRestarts") or 0),
    }


def running(units: list) -> list:
    """Those that run, by the names that their processes go by.

    A unit of a user's own manager may have the same name. It is not stopped here, so it does not count.
    """
    return [found["id"] for found in map(look, units) if found["active"]]


def before(units: list, known: dict) -> dict:
    """What each of `units` is now, by its own name; of those in `known`, which an activation may have stopped, what is
    said there."""
    ports, kept = listeners.read(Roots())["ports"], dict(known)
    others = listeners.given_by_chance(Roots())  # an engine's workers talk over such
    for unit in units:
        found = look(unit)
        if found["id"] in kept or not found["there"]:
            continue
        listens = sorted(
            int(port) for port, who in ports.items() if who.get("unit") == found["id"] and int(port) not in others
        )
        path = os.path.realpath(found["path"]) if found["path"] else None
        kept[found["id"]] = {"enabled": found["enabled"], "active": found["active"], "ports": listens, "path": path}
    return kept


def stop(units: list) -> None:
    for unit in units:
        if look(unit)["active"]:
            events.log("stopping {}, whose place is taken".format(unit))
            systemd.stop(unit)


def settle(units: dict) -> list:
    """Off for good: stopped where a boot has started them again, and disabled. Returns those that changed."""
    changed = []
    for unit in units:
        found = look(unit)
        if found["active"]:
            systemd.stop(unit)
        if found["enabled"]:
            systemd.disable(unit)
            if found["script"]:
                scripts.sync()
                systemd.reload()  # what makes the unit looks at the links anew
            off = "is disabled; its files are left as they are"
            events.log("{} {}".format(unit, "starts at boot still" if look(unit)["enabled"] else off))
        if found["active"] or found["enabled"]:
            changed.append(unit)
    return changed


def start(units: dict) -> list:
    """Start those that ran; returns them. One that is gone meanwhile is left out, and said."""
    started = []
    for unit, kept in units.items():
        if not kept["active"]:
            continue
        found = look(unit)
        if not found["there"] and not is_file(kept.get("path")):
            events.log("{} is not there any more, and cannot be started again".format(unit))
            continue
        systemd.forget(unit)
        systemd.systemctl("start", "--no-block", unit)
        started.append(unit)
    return started


def wait(units: dict, seconds: float = ANSWER_SECONDS) -> None:
    """Until the units that ran listen again where they did. Raises Failure for one that ends or does not in time."""
    began, wanted = time.monotonic(), {unit: kept for unit, kept in units.items() if kept["active"] and kept["ports"]}
    first = {unit: look(unit)["restarts"] for unit in wanted}
    for unit in wanted:
        events.log("waiting until {} listens again".format(unit))
    while wanted:
        ports = listeners.read(Roots())["ports"]
        for unit, kept in list(wanted.items()):
            found = look(unit)
            if all((ports.get(str(port)) or {}).get("unit") == found["id"] for port in kept["ports"]):
                del wanted[unit]
                continue
            why = "it is {}".format(found["state"]) if found["state"] in ENDED and not found["job"] else ""
            if found["restarts"] - first[unit] >= CRASHES:
                why = "it was started {} times over".format(found["restarts"] - first[unit])
            if time.monotonic() - began >= seconds:
                why = "it did not within {:.0f} s".format(seconds)
            if why:
                raise Failure(
                    "{} does not listen on port {}: {}".format(unit, ", ".join(map(str, kept["ports"])), why),
                    "see `systemctl status {}` on the box".format(unit),
                )
        if wanted:
            time.sleep(LOOK_SECONDS)


def give_back(name: str, only: "Optional[Iterable[str]]" = None) -> dict:
    """Enable and start the units whose place an instance took, as they were before, and wait until they listen again.

    Those that other instances have the place of, too, stay off until the last of these goes. Returns {"started": those
    that do, "failed": of each that does not, why}: none keeps the others from it. The instance is off by then. Cut off
    it can be done again; when it has ended, nothing is left to be given back.

    + only: of these units
    """
    begun: list = []
    done: dict = {"started": [], "failed": []}
    for unit, others in taken.hand_on(name, only).items():
        events.log("{} stays off: {} has its place, too".format(unit, ", ".join(others)))
    units = taken.alone(name, only)
    for unit, kept in units.items():
        with told(done["failed"]):
            enable_again(unit, kept)
    for unit, kept in units.items():
        with told(done["failed"]):
            begun += start({unit: kept})
    for unit in begun:
        with told(done["failed"]):
            wait({unit: units[unit]})
            done["started"].append(unit)
    if units:
        state.journal("given-back", instance=name, units=sorted(units), started=done["started"])
    taken.settled(units)
    return done


def enable_again(unit: str, kept: dict) -> None:
    """Where it was enabled. Raises Failure, also for one whose file is gone."""
    found = look(unit)
    if not found["there"] and not is_file(kept.get("path")):
        raise Failure("{} is not there any more".format(unit), "make it anew where it is wanted")
    if kept["enabled"] and not found["enabled"]:
        # Of a file that lay elsewhere and was linked, `disable` took the link.
        systemd.enable(unit if found["there"] else kept["path"])
        if found["script"]:
            scripts.sync()
        systemd.reload()


@contextlib.contextmanager
def told(lines: list) -> "Iterator[None]":
    """A failure is a line, and no end."""
    try:
        yield
    except Failure as failure:
        lines.append(str(failure))


def is_file(path: "Optional[str]") -> bool:
    return bool(path) and os.path.isfile(str(path))
