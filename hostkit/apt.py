"""Packages by apt: NVIDIA's repository with its key checked, and nothing that would touch the driver."""

from __future__ import annotations

import contextlib
from typing import Optional

from hostkit import apt_call, apt_simulation, apt_sources, apt_warnings, blacklist, cuda_link, events, holds, shell
from hostkit.errors import Failure


def run(spec: dict) -> dict:
    """Install `packages`, and see that what is installed stays.

    spec:
    + packages: exact names
    + repository: {name, url, key_url, fingerprint} of the CUDA repository, null when none is needed
    + hold: true: hold what we installed of the toolkit; false: release our holds; null: leave them
    + keep_off: the same for unattended-upgrades and driver, kernel, toolkit

    Raises Failure when the key is another than the pinned one, when a list of packages cannot be trusted or had, or
    when apt would touch the driver, remove anything or take a toolkit from two origins. Then nothing is installed.
    """
    if spec.get("keep_off") is not None:
        blacklist.write() if spec["keep_off"] else blacklist.remove()
    packages = spec["packages"]
    if packages:
        install(packages, spec.get("repository"))
    if spec.get("hold") is not None:
        holds.hold() if spec["hold"] else holds.release()
    return {"installed": packages}


def install(packages: list, repository: Optional[dict]) -> None:
    """Install after a look at what that would do; raises Failure when it is not to be done."""
    apt_simulation.refuse_requests(packages)
    if repository:
        apt_sources.add_repository(repository)
    cuda = repository["url"] if repository else None
    # A box that lost power while dpkg worked: finish that first.
    apt_call.apt(["dpkg", "--configure", "-a"])
    later = apt_warnings.refuse(update(cuda), cuda)
    with holds.released():
        try:
            planned = apt_simulation.steps(apt_call.apt(apt_call.APT + ["--simulate", "install", "--"] + packages))
        except Failure as failure:
            # A list that was not had is likely the reason.
            raise apt_warnings.failure(later[0], cuda) if later else failure
        apt_simulation.refuse_changes(planned)
        known = (
            apt_simulation.sources(apt_call.apt(["apt-cache", "policy"] + [step.name for step in planned]))
            if planned
            else {}
        )
        addresses = [item for versions in known.values() for found in versions.values() for item in found]
        apt_warnings.refuse_needed(later, addresses, cuda)
        toolkit = apt_simulation.of_toolkit(planned, known, cuda)
        new = {step.name for step in planned if step.before is None}
        holds.note(new.intersection(toolkit), new.difference(toolkit))
        events.log("apt-get install " + " ".join(packages))
        events.emit("progress", installing=True)  # nothing refused it: see operations/ahead.py
        with cuda_link.kept() if toolkit else contextlib.nullcontext():
            apt_call.apt(apt_call.APT + ["--no-remove", "install", "--"] + packages)


def update(cuda: Optional[str]) -> list:
    """What `apt-get update` finds wrong (apt_warnings.Problem). Raises Failure for what stops apt altogether."""
    events.log("apt-get update")
    try:
        return apt_warnings.problems(apt_call.attempt(apt_call.APT + ["update"]), cuda)
    except shell.Ended as ended:
        found = apt_warnings.problems(ended.output, cuda)
        if not found or any(item.repository is None for item in found):
            raise apt_call.explain(ended, [])
        return found
