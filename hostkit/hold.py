"""Holding an instance: deploys leave it alone, and say so, until `unhold`."""

from __future__ import annotations

from hostkit import state, switch
from hostkit.errors import Failure
from hostkit.releases import current_release
from hostkit.roots import Roots


def run(spec: dict) -> dict:
    """Hold `instance` on the release it has; `by`: who asks for it. Returns {"held": {"since", "by", "digest"}}."""
    name = spec["instance"]
    current = current_release(Roots(), switch.home_of(name))
    if current is None:
        raise Failure("{} is not served on this box".format(name), "hold an instance that `gpufleet status` names")
    held = {"since": state.now(), "by": spec.get("by"), "digest": current}
    state.update(name, held=held)
    state.journal("held", instance=name, digest=current, by=spec.get("by"))
    return {"held": held}
