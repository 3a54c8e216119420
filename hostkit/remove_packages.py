"""The packages that gpufleet installed, when it leaves a box: purged as far as nothing else needs them."""

from __future__ import annotations

import glob
import os
from typing import List, Tuple

from hostkit import apt_call, apt_simulation, apt_sources, events, files, holds

PURGE = [*apt_call.APT, "-o", "APT::Get::AutomaticRemove=false", "purge", "--"]


def find() -> Tuple[List[str], List[str]]:
    """(packages that go, those that stay because something that gpufleet did not install needs them).

    What a purge would take is read from a simulation before; none takes anything else along.
    """
    ours = holds.all_installed()
    if not ours or taken(ours) <= set(ours):
        return ours, []
    free = [name for name in ours if taken([name]) <= set(ours)]
    return free, [name for name in ours if name not in free]


def taken(names: List[str]) -> "set[str]":
    """The packages that a purge of these would remove. Raises Failure."""
    simulated = apt_call.apt([PURGE[0], "--simulate", "--allow-change-held-packages", *PURGE[1:], *names])
    return {step.name for step in apt_simulation.steps(simulated) if step.after is None}


def remove() -> None:
    """Purge those that go; the holds that gpufleet put on them are off already. Raises Failure."""
    names, needed = find()
    if needed:
        events.log("other packages need {}: left".format(", ".join(needed)))
    if names:
        events.log("apt-get purge " + " ".join(names))
        apt_call.apt(PURGE + names)
    for path in sources():
        events.log("removing " + path)
        files.with_suppressed_unlink(path)


def sources() -> List[str]:
    """The CUDA repository and its key, as gpufleet wrote them."""
    patterns = (apt_sources.SOURCES + "/gpufleet-*.sources", apt_sources.KEYRINGS + "/gpufleet-*.asc")
    return sorted(path for pattern in patterns for path in glob.glob(pattern) if os.path.isfile(path))
