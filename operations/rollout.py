"""Rollout: in waves, each changed instance is switched to its release, gated, and kept or put back."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyinfra.api.operation import operation

from gpufleet.changes import InstanceChange
from gpufleet.gate_spec import gate_spec
from gpufleet.render import model_path
from gpufleet.waves import Wave
from operations import course
from operations.deployment import Commands, Deployment, for_each
from operations.run import session


def waves() -> list[Wave]:
    """The waves of this run, in order; none when no instance is to be switched."""
    return session.order.waves


@operation()
def activated(box: Deployment, wave: Wave) -> Commands:
    """
    Activate each instance that changed, when it is the box's turn. A failure ends the run before the next wave.

    + box: the deployment of this box
    + wave: of `waves()`

    **Example:**

    .. code:: python

        for wave in box.host.loop(rollout.waves()):
            rollout.activated(name=wave.title, box=box, wave=wave)
    """
    if course.has_turn(box, wave):
        yield from box.command(partial(_switch, box))
    else:
        box.host.noop("it is in another wave, or has nothing to be switched")


def _switch(box: Deployment) -> None:
    changed, leaving = box.changes.instances, box.changes.leaving
    if changed:
        for_each(partial(_activate, box), changed)
    else:
        box.call("retire", {"instances": leaving})
    session.of(box.host.name).serves.update(dict.fromkeys(leaving))


def _activate(box: Deployment, change: InstanceChange) -> None:
    # What leaves gives its port and memory to the first that starts, and comes back when that one fails.
    leaving = box.changes.leaving if change is box.changes.instances[0] else []
    others = {"instead_of": leaving, "replaces": list(change.instance.replaces)}
    asked = {**spec(change), **others, "keep": box.plan.settings.rollout.keep, "run": session.id}
    job = {"verb": "activate", "spec": asked}
    answer = course.failed_on(box, change.instance.name, partial(box.call, "job", job))
    how = "restarted and gated" if answer["restarted"] else "gated without a restart"
    box.host.log(f"{change.instance.name} serves {change.release.digest}: {how} in {answer['seconds']} s")
    outcome = session.of(box.host.name)
    outcome.gates[change.instance.name] = answer
    outcome.serves[change.instance.name] = change.release.digest


def spec(change: InstanceChange) -> dict[str, Any]:
    """What the kit's verb `activate` needs."""
    instance = change.instance
    return {
        "instance": instance.name,
        "digest": change.release.digest,
        "runtime": instance.runtime.path,
        "model": model_path(instance),
        "port": instance.port,
        "gpus": change.gpus,
        "warm": [instance.runtime.path, model_path(instance)],
        "gate": gate_spec(instance),
    }
