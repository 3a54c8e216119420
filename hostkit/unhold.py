"""The end of holding an instance: the next deploy brings it to the planned release."""

from __future__ import annotations

from hostkit import state


def run(spec: dict) -> dict:
    """Returns {"held": what it was held as, or null}; of one that is not held nothing is written."""
    name = spec["instance"]
    held = state.instance(name).get("held")
    if held:
        state.update(name, held=None)
        state.journal("unheld", instance=name, digest=held.get("digest"), by=spec.get("by"))
    return {"held": held}
