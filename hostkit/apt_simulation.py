"""What an install would do, read from `apt-get -s install` before it is done, and why it is refused."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Sequence

from hostkit import apt_names, apt_sources
from hostkit.errors import Failure

_STEP = re.compile(r"^(Inst|Remv|Purg) (\S+)(?: \[([^\]]*)\])?(?: \((\S+))?")
LOOK = "look at `apt-get -s install` on the box"


class Step(NamedTuple):
    """One line of a simulation: `Inst libfoo:i386 [1.0] (1.1 Debian:12/stable [i386])`."""

    name: str  # with `:i386` when it is not of the box's own architecture
    before: Optional[str]  # the version it replaces, or that is removed
    after: Optional[str]  # the version that comes, None for one that is removed


# By package and version, the addresses that have it, in the order of `apt-cache policy`.
Sources = Dict[str, Dict[str, List[str]]]


def steps(printed: str) -> List[Step]:
    """The packages that would come, change or go; configuring them is no step of its own."""
    found = (_STEP.match(line) for line in printed.splitlines())
    return [
        Step(each.group(2), each.group(3), each.group(4) if each.group(1) == "Inst" else None) for each in found if each
    ]


def sources(policy: str) -> Sources:
    """Where each version of each package is to be had, from `apt-cache policy NAMES`."""
    found: Sources = {}
    versions: Dict[str, List[str]] = {}
    addresses: List[str] = []
    for line in policy.splitlines():
        head = re.match(r"(\S+):$", line)
        version = re.match(r" (?:\*\*\*|   ) (\S+)(?: .*)?$", line)
        source = re.match(r" {6,}-?\d+ (\S+)", line)
        if head:
            versions = found.setdefault(head.group(1), {})
        elif version:
            # A version that is there twice is two packages of one number; apt says only by address which is which.
            addresses = versions.setdefault(version.group(1), [])
        elif source and not source.group(1).startswith("/"):  # else the box's own status file
            addresses.append(source.group(1))
    return found


def refuse_requests(names: Sequence[str]) -> None:
    """Raise Failure when a package is asked for that is, or brings, a driver."""
    wrong = [name for name in names if apt_names.brings_driver(name)]
    if wrong:
        raise Failure(
            "{} would bring an NVIDIA driver".format(", ".join(wrong)),
            "name cuda-toolkit-VERSION in the stack's page; the driver is yours to choose",
        )


def refuse_changes(planned: Sequence[Step]) -> None:
    """Raise Failure when the driver would be touched, or anything removed: both are the owner's to decide."""
    driver = [step.name for step in planned if apt_names.DRIVER.match(step.name)]
    if driver:
        raise Failure(
            "apt would change the NVIDIA driver ({})".format(_listed(driver)),
            "install the toolkit package alone, never `cuda`; " + LOOK,
        )
    removed = [step.name for step in planned if step.after is None]
    if removed:
        raise Failure(
            "apt would have to remove {}".format(_listed(removed)), LOOK + "; remove or hold by hand what conflicts"
        )


def of_toolkit(planned: Sequence[Step], known: Sources, repository: Optional[str]) -> List[str]:
    """The packages that would come from the CUDA repository.

    + repository: its address, None when none is needed
    Raises Failure when a part of the toolkit would come from anywhere else, or could: of two repositories with the same
    version apt takes the one that comes first in its files.
    """
    ours = []
    for step in planned:
        if step.after is None:
            continue
        found = known.get(step.name, {}).get(step.after, [])
        from_it = [item for item in found if repository and apt_sources.same(item, repository)]
        others = [item for item in found if item not in from_it]
        if from_it and not others:
            ours.append(step.name)
        elif from_it or apt_names.TOOLKIT.match(step.name):
            raise Failure(_mixed(step, from_it, others), _remedy(others, repository))
    return ours


def _mixed(step: Step, from_it: Sequence[str], others: Sequence[str]) -> str:
    where = "also from " if from_it else "from "
    where += ", ".join(others) if others else "no source that apt-cache policy knows"
    return "{} {} would come {}".format(step.name, step.after, where) + (
        "" if from_it else ", not from the CUDA repository"
    )


def _remedy(others: Sequence[str], repository: Optional[str]) -> str:
    files = sorted({path for item in others for path in apt_sources.files_with(item)})
    out = "take it out of {}".format(", ".join(files)) if files else "take that source away"
    if not repository:
        return "no toolkit is planned for this box: set host.toolkit, or " + out
    return "two CUDA repositories do not mix: {}, or set mirrors.cuda to it ({})".format(out, LOOK)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:8]) + (" and {} more".format(len(names) - 8) if len(names) > 8 else "")
