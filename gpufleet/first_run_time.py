"""How long a first run takes, about: from sizes, from what was measured before, else from what is assumed. No I/O.

What apt fetches is not in it: nobody knows it before apt is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from gpufleet.changes import Changes
from gpufleet.first_run_files import Coming
from gpufleet.plan import BoxPlan

# Bytes per second: a line of 80 Mbit/s, where nothing was fetched before; a gigabit LAN (118 MB/s in docs/status.md).
OUTSIDE, LAN = 10e6, 100e6
# Seconds, by docs/status.md: a runtime unpacked and verified; one of two extensions, which took 7 min of two cores.
INSTALL, COMPILE_OF_ONE_CORE = 60.0, 420.0
# From the start to the passed gate, where no report tells of one like it: weights, graphs, the first requests.
START = 300.0


@dataclass(frozen=True)
class Rates:
    """Bytes per second. `measured`: whether the one from outside was, in an earlier fetch"""

    outside: float = OUTSIDE
    lan: float = LAN
    measured: bool = False


def fetching(coming: Coming, rates: Rates) -> float:
    """Seconds."""
    return coming.lacking / rates.outside


def spreading(coming: Coming, rates: Rates, peers: bool) -> float:
    """Seconds from the controller to the boxes, which give on what they have where they may."""
    loads = coming.to_box.values()
    return (max(loads, default=0) if peers else sum(loads)) / rates.lan


def installing(boxes: Iterable[tuple[BoxPlan, Changes]], made: Iterable[str]) -> float:
    """Seconds of the slowest box: each runtime unpacked and verified; compiled on the first box of its kind, for which
    the others wait. + made: names of runtimes whose extensions the controller has"""
    there, slowest, compiled = set(made), 0.0, dict[str, float]()
    for plan, changes in boxes:
        slowest = max(slowest, INSTALL * len(changes.runtimes))
        cores = (plan.facts.get("cpu") or {}).get("cores") or 1
        for runtime in changes.runtimes:
            if runtime.stack.compile and runtime.name not in there:
                compiled.setdefault(runtime.name, INSTALL + COMPILE_OF_ONE_CORE * len(runtime.stack.compile) / cores)
    return slowest + max(compiled.values(), default=0.0)


def starting(boxes: Iterable[tuple[BoxPlan, Changes]], reports: Sequence[Mapping[str, Any]], waves: int) -> float:
    """Seconds: the slowest box, its instances one after the other, in each wave."""
    known = gated(reports)
    loads = [
        sum(known.get((each.instance.stack.name, each.instance.model.name), START) for each in changes.instances)
        for _, changes in boxes
    ]
    return max(loads, default=0.0) * max(1, waves)


def gated(reports: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Seconds of the last activation by stack and model, from reports of earlier runs, oldest first."""
    found: dict[tuple[str, str], float] = {}
    for report in reports:
        for box in (report.get("boxes") or {}).values():
            for instance in (box.get("instances") or {}).values():
                seconds = (instance.get("gate") or {}).get("seconds")
                if isinstance(seconds, int | float) and instance.get("stack") and instance.get("model"):
                    found[instance["stack"], instance["model"]] = float(seconds)
    return found


def about(seconds: float) -> str:
    """`under a minute`, `about 8 min`, `about 1 h 25 min`: no finer than such a figure holds."""
    if seconds < 60:
        return "under a minute"
    minutes = ceil(seconds / 60)
    minutes = minutes if minutes < 20 else ceil(minutes / 5) * 5
    return f"about {minutes} min" if minutes < 90 else f"about {minutes // 60} h {minutes % 60:02d} min"
