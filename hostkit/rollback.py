"""Going back to a release that passed its gate before: no controller's files, no download, no build."""

from __future__ import annotations

from typing import Optional

from hostkit import books, events, gates, replaced, resume_unit, state, switch
from hostkit.activation import Activation, check_whole
from hostkit.errors import Failure
from hostkit.releases import current_release
from hostkit.roots import Roots


def run(spec: dict) -> dict:
    """Bring `instance` to the last release before its current one that passed its gate, or to the release `to`.

    + by: who asks for it; hold: whether deploys leave the instance alone afterwards (default: yes)
    + give_back: units of the owner's whose place it took since, and that ran beside that release
    Returns what `activate` does, and `digest`. Raises Failure; when its gate fails, the current release is put back.
    """
    name, hold = spec["instance"], bool(spec.get("hold", True))
    known, current = books.settled(name), current_release(Roots(), switch.home_of(spec["instance"]))
    digest = target(name, known, current, spec.get("to"))
    kept = gates.read(name, digest)
    if kept is None:
        raise Failure(
            "nothing says how release {} of {} is gated".format(digest, name),
            "deploy the configuration that you want instead",
        )
    try:
        check_whole(kept["runtime"], kept["model"])
    except Failure as failure:
        failure.remedy = "it was removed since; deploy the older configuration, which brings it back"
        raise
    resume_unit.install()
    events.log("{} goes from release {} to {}".format(name, current or "none", digest))
    kept["run"] = spec.get("run")
    begun = {**books.record(kept, known, "rollback", by=spec.get("by")), "hold": hold}
    done = {**Activation(kept, known, begun, hold).run(), "digest": digest}
    units = [replaced.look(unit)["id"] for unit in spec.get("give_back") or []]
    back = replaced.give_back(name, units)
    if back["failed"]:
        raise Failure(
            "release {} of {} serves again, and {}".format(digest, name, "; ".join(back["failed"])),
            "see to these units on the box",
        )
    return done


def target(name: str, known: dict, current: Optional[str], to: Optional[str]) -> str:
    """The release to go back to. Raises Failure when there is none."""
    if to:
        if to == current and known.get("gated") == to:
            raise Failure("{} is on release {} already".format(name, to), "`gpufleet history` names the others")
        if not switch.is_staged(name, to):
            raise Failure("{} has no release {} any more".format(name, to), "`gpufleet history` names those it has")
        return to
    for digest in state.passed(known):
        if digest != current and switch.is_staged(name, digest) and gates.read(name, digest):
            return str(digest)
    raise Failure(
        "{} has no release before {} that passed its gate and is still there".format(name, current or "this one"),
        "deploy the configuration that you want",
    )
