"""Switching an instance to a release: link, restart when something changed, gate, keep or put back."""

from __future__ import annotations

import os
import shutil
import time

from hostkit import events, files, gate, listeners, release, retire, state, systemd
from hostkit.errors import Failure
from hostkit.releases import current_release, unit_name
from hostkit.roots import Roots

KEEP = 3


def run(spec: dict) -> dict:
    """Activate `digest` of `instance`.

    + runtime, model: directories that must be complete before anything is switched
    + gate: see hostkit.gate; port: what it will listen on
    + instead_of: names of instances that leave the box; stopped before this one starts, started again when it fails
    Returns {"restarted", "seconds", "gate"}. Raises Failure after putting the previous release back, or, when there
    is none, after stopping the service again.
    """
    name, digest = spec["instance"], spec["digest"]
    home = os.path.join(release.INSTANCES, name)
    target = os.path.join("releases", digest)
    check_whole(spec["runtime"], spec["model"])
    unit = unit_name(name)
    known, previous, service = state.instance(name), current_release(Roots(), home), systemd.show(unit)
    restart = bool(
        previous not in (None, digest)
        or known.get("gated") != digest
        or known.get("stale")
        or service["active"] != "active"
        or is_foreign(home, unit)
    )
    leaving = [unit_name(other) for other in spec["instead_of"]]
    if restart:
        refuse_foreign_listener(spec["port"], [unit, *leaving])
        state.update(name, stale=True)  # until the gate has passed, whatever happens in between
    for other in leaving:
        events.log("stopping {}, which leaves".format(other))
        systemd.stop(other)
    began, moment = time.monotonic(), time.time()
    try:
        switch(home, target, unit)
        if restart:
            events.log("starting {} on release {}".format(unit, digest))
            systemd.restart(unit)
        answer = gate.run(unit, spec["port"], spec["gate"], moment, service["pid"] if restart else None)
    except Exception as error:
        failure = as_failure(error)
        try:
            put_back(name, home, unit, digest, known.get("gated"), failure, restart, spec)
        except Exception as second:
            failure.remedy += "; putting back failed, too: {}".format(second)
        for other in leaving:
            systemd.restart(other)
            failure.remedy += "; {} runs again".format(other)
        raise failure
    seconds = round(time.monotonic() - began, 1)
    state.update(name, gated=digest, stale=False, port=spec["port"])
    state.journal("activated", instance=name, digest=digest, restarted=restart, seconds=seconds, gate=answer)
    prune(home, digest, previous)
    for other in spec["instead_of"]:
        retire.leave(other)
    return {"restarted": restart, "seconds": seconds, "gate": answer}


def check_whole(runtime: str, model: str) -> None:
    """Raise Failure unless both are whole; a model that lies with the owner is a link, and has no mark of ours."""
    linked = os.path.islink(model) and os.path.isfile(os.path.join(model, "config.json"))
    for path, whole in ((runtime, files.is_complete(runtime)), (model, linked or files.is_complete(model))):
        if not whole:
            raise Failure("{} is not complete".format(path), "deploy again; it is installed before the switch")


def as_failure(error: Exception) -> Failure:
    if isinstance(error, Failure):
        return error
    remedy = "see to what it names (space, permissions)" if isinstance(error, OSError) else "report this"
    return Failure(str(error) or repr(error), remedy)


def is_foreign(home: str, unit: str) -> bool:
    """Whether a unit of another making stands where ours should: what runs under the name may not be ours either."""
    found = files.sha256(os.path.join(files.UNITS, unit))
    releases = os.path.join(home, "releases")
    ours = [files.sha256(os.path.join(releases, digest, unit)) for digest in os.listdir(releases)]
    return found is not None and found not in ours


def switch(home: str, target: str, unit: str) -> None:
    """The link and the unit. The unit is a file: where /opt is a file system of its own, a link into it leads nowhere
    at the moment when systemd reads units at boot."""
    files.link(target, os.path.join(home, "current"))
    with open(os.path.join(home, target, unit), "rb") as handle:
        files.write(os.path.join(files.UNITS, unit), handle.read())
    # Always: a unit file that was edited and put right again is another file to systemd, too.
    systemd.reload()
    systemd.enable(unit)


def put_back(
    name: str, home: str, unit: str, digest: str, gated: "str | None", failure: Failure, restart: bool, spec: dict
) -> None:
    """Return to the last release that passed its gate; a service that never passed one is stopped."""
    if gated == digest or not restart:
        # What serves is what served before, or this very release: there is nothing better to go back to.
        state.update(name, stale=True)
        failure.remedy += "; the instance is left as it is"
    elif gated and os.path.isdir(os.path.join(home, "releases", gated)):
        events.log("putting release {} back".format(gated))
        switch(home, os.path.join("releases", gated), unit)
        before, moment = systemd.show(unit)["pid"], time.time()
        systemd.restart(unit)
        port = state.instance(name).get("port") or spec["port"]
        try:
            gate.wait(unit, port, spec["gate"], moment, before)
            failure.remedy += "; release {} serves again".format(gated)
            state.update(name, stale=False)
        except Failure as second:
            failure.remedy += "; release {} was put back and does not answer: {}".format(gated, second.cause)
    else:
        retire.leave(name)
    # The books come last: on a full disk they fail, and what serves matters more.
    state.journal("gate-failed", instance=name, digest=digest, cause=failure.cause, back=current_release(Roots(), home))


def refuse_foreign_listener(port: int, units: list) -> None:
    holder = listeners.read(Roots())["ports"].get(str(port))
    if holder and holder.get("unit") not in units:
        raise Failure(
            "port {} is taken by {}".format(port, holder.get("unit") or holder.get("command") or "another program"),
            "stop it, or give the instance another port",
        )


def prune(home: str, digest: str, previous: "str | None") -> None:
    """Keep this release, the one before it, and the newest others up to KEEP."""
    releases = os.path.join(home, "releases")
    names = sorted(os.listdir(releases), key=lambda name: os.stat(os.path.join(releases, name)).st_mtime, reverse=True)
    keep = [kept for kept in (digest, previous) if kept]
    for name in names:
        if name not in keep and not name.startswith("."):
            keep.append(name) if len(keep) < KEEP else shutil.rmtree(os.path.join(releases, name), ignore_errors=True)
