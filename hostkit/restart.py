"""Restarting an instance on the release it has, as an activation does it: checked before, gated after, measured."""

from __future__ import annotations

from hostkit import books, gates, resume_unit, switch
from hostkit.activation import Activation
from hostkit.errors import Failure
from hostkit.releases import current_release
from hostkit.roots import Roots


def run(spec: dict) -> dict:
    """Stop `instance`, start it, gate it. Returns what `activate` does, and `digest`.

    Raises Failure when the gate fails; nothing is put back, for it is the release that served before.
    """
    name = spec["instance"]
    known, current = books.settled(name), current_release(Roots(), switch.home_of(spec["instance"]))
    kept = gates.read(name, current) if current else None
    if current is None or kept is None:
        raise Failure(
            "{} has no release that could be restarted".format(name)
            if current is None
            else "nothing says how release {} of {} is gated".format(current, name),
            "deploy this box",
        )
    resume_unit.install()
    kept["run"] = spec.get("run")
    begun = {**books.record(kept, known, "restart", by=spec.get("by")), "from": current}
    return {**Activation(kept, known, begun).run(), "digest": current}
