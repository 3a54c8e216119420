"""gpufleet's units, when it leaves a box: those of instances, of jobs, and its own two."""

from __future__ import annotations

import os
import re
from typing import Dict, List

from hostkit import events, files, host_state, releases, resume_unit, share, state, systemd, taken
from hostkit import replaced as owners_units
from hostkit.errors import Failure
from hostkit.roots import Roots

OURS = re.compile(r"gpufleet-job-[0-9a-f]+\.service")


def instances() -> List[str]:
    """Every instance that the box has or remembers, retired ones included."""
    return sorted({*releases.instance_names(Roots()), *state.load()["instances"]})


def give_back(names: List[str]) -> Dict[str, List[str]]:
    """Start what these instances took the place of, as it was before: {"started": units, "failed": lines}.

    One that does not start is no reason to leave gpufleet on the box.
    """
    done: Dict[str, List[str]] = {"started": [], "failed": []}
    for name in names:
        if not taken.recorded(name):
            continue
        try:
            answer = owners_units.give_back(name)
        except Failure as failure:
            done["failed"].append(str(failure))
        else:
            done["started"] += answer["started"]
            done["failed"] += answer["failed"]
    return done


def stop_jobs() -> None:
    """Whatever runs by itself, but for what runs this, and what gives files to other boxes."""
    listed = systemd.systemctl("list-units", "--all", "--plain", "--no-legend", "gpufleet-job-*", allowed=True)
    units = [word for word in listed.split() if OURS.fullmatch(word) and word not in own_unit()]
    for unit in [*dict.fromkeys(units), share.UNIT + ".service", resume_unit.NAME]:
        systemd.stop(unit)
        systemd.forget(unit)


def own_unit() -> str:
    """The control group of this process, in which the unit is named that it runs in."""
    return Roots().text_or_none("/proc/self/cgroup") or ""


def of_the_box() -> List[str]:
    """Our own two, those that are there."""
    names = (host_state.UNIT, resume_unit.NAME)
    wants = os.path.join(files.UNITS, systemd.WANTS)
    return [name for name in names if any(os.path.lexists(os.path.join(at, name)) for at in (files.UNITS, wants))]


def remove_own() -> None:
    for name in of_the_box():
        events.log("removing " + name)
        systemd.systemctl("stop", name, allowed=True)
        systemd.disable(name)
        for folder in (files.UNITS, os.path.join(files.UNITS, systemd.WANTS)):
            files.with_suppressed_unlink(os.path.join(folder, name))
        systemd.reload()
        systemd.forget(name)
    systemd.sync()


def drop_ins() -> List[str]:
    """Folders of the owner's that change units of ours; they mean nothing once the unit is gone."""
    try:
        names = sorted(os.listdir(files.UNITS))
    except FileNotFoundError:
        return []
    return [os.path.join(files.UNITS, name) for name in names if re.fullmatch(r"gpufleet-.*\.service\.d", name)]
