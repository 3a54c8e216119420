"""`rollout.on_failure = "put back all"`: what was switched in a run goes back to what served before it.

That is a release that an instance had, or units of the owner's whose place it took. A box that served neither keeps
what it serves now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from gevent.pool import Pool

from gpufleet.errors import BoxError
from gpufleet.reports import who
from operations.deployment import Deployment
from operations.run import session

AT_ONCE = 50


def everything(boxes: Mapping[str, Deployment]) -> None:
    """Every instance that was switched in this run goes back, in waves as it came, the last first."""
    for number in sorted(session.turns, reverse=True):
        meant = [boxes[name] for name in session.turns[number] if _switched(boxes[name])]
        if meant:
            click.echo(f"gpufleet: putting back {', '.join(box.host.name for box in meant)}", err=True)
            Pool(AT_ONCE).map(_put_back, meant)


def _switched(box: Deployment) -> dict[str, str | None]:
    """What each instance goes back to, of those that this run switched on a box: its release, or None to nothing."""
    facts, outcome = box.plan.facts.get("instances") or {}, session.of(box.host.name)
    had = {name: (facts.get(name) or {}).get("current") for name in outcome.gates}
    if not any(_taken(box, name) for name, digest in had.items() if not digest):
        # Nothing served in place of those that are new, so there is nothing to make room for.
        had = {name: digest for name, digest in had.items() if digest}
    back = {name: digest for name, digest in had.items() if digest != outcome.serves.get(name)}
    return dict(reversed(back.items()))  # the last first: what it took may be what the one before it needs again


def _taken(box: Deployment, name: str) -> list[str]:
    """The units of the owner's that were stopped in this run for an instance."""
    return next((change.replaces for change in box.changes.instances if change.instance.name == name), [])


def _put_back(box: Deployment) -> None:
    outcome = session.of(box.host.name)
    for name, digest in _switched(box).items():
        try:
            serves = _release(box, name, digest) if digest else _nothing(box, name)
        except BoxError as error:
            # The box may have failed before: this is to be read, too.
            outcome.put_back[name] = f"failed: {error.cause}"
            session.failed(error)
            box.host.log_styled(str(error), fg="red")
        else:
            outcome.put_back[name] = serves
            outcome.serves[name] = digest
            box.host.log(f"{name} was put back: {serves}")


def _release(box: Deployment, name: str, digest: str) -> str:
    _job(box, "rollback", {"instance": name, "to": digest, "hold": False, "give_back": _taken(box, name)})
    return f"serves {digest}"


def _nothing(box: Deployment, name: str) -> str:
    """The instance goes, and with the last that has the place of a unit that serves again."""
    units = _job(box, "undo", {"instance": name})["back"]
    return f"{', '.join(units)} runs again" if units else "off, as before"


def _job(box: Deployment, verb: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return box.call("job", {"verb": verb, "spec": {**spec, "by": who(), "run": session.id}})
