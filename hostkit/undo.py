"""An adoption undone: the instance goes, and the units of the owner's whose place it took serve again as they did."""

from __future__ import annotations

from hostkit import books, events, gates, put_back, resume_unit, taken
from hostkit.activation import Activation, finished_by_resume
from hostkit.errors import Failure
from hostkit.releases import current_release
from hostkit.roots import Roots
from hostkit.switch import home_of


def run(spec: dict) -> dict:
    """Take `instance` off, as an activation does that fails and has no release before it; its releases stay.

    + by: who asks for it; run: the run of the deploy, for the journal
    A unit that other instances have the place of, too, stays off until the last of them goes. Cut off, gpufleet-resume
    goes on with it. Returns {"back": units that run again}. Raises Failure when one of them does not.
    """
    name = spec["instance"]
    resume_unit.install()
    known = books.settled(name)
    digest = known.get("gated") or current_release(Roots(), home_of(name))
    kept = {**(gates.read(name, digest) or {}), "instance": name, "digest": digest, "run": spec.get("run")}
    for unit, others in taken.hand_on(name).items():
        events.log("{} stays off: {} has its place, too".format(unit, ", ".join(others)))
    units = taken.alone(name)
    begun = {**books.record(kept, known, books.UNDO, by=spec.get("by")), "from": None}
    begun.update(replaces=[], replaced=units, instead=True, touched=True)
    activation = Activation(kept, known, begun)
    failure = Failure("{} was taken off".format(name), "see to it on the box")
    with finished_by_resume():
        told = put_back.release_before(activation, failure)
    if not told["ok"]:
        raise Failure("{}, and {}".format(failure.cause, told["cause"]), failure.remedy)
    taken.settled(units)
    return {"back": sorted(unit for unit, was in units.items() if was["active"])}
