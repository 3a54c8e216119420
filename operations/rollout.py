"""Rollout: each changed instance is switched to its release, gated, and kept or put back."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyinfra.api.operation import operation

from gpufleet.changes import InstanceChange
from gpufleet.gate_spec import gate_spec
from gpufleet.render import model_path
from operations.deployment import Commands, Deployment, for_each
from operations.session import session


@operation()
def activated(box: Deployment) -> Commands:
    """
    Activate each instance that changed; the others are not touched.

    + box: the deployment of this box

    **Example:**

    .. code:: python

        rollout.activated(name="Rollout", box=box)
    """
    changed, leaving = box.changes.instances, box.changes.leaving
    if changed:
        yield from box.command(lambda: for_each(partial(_activate, box), changed))
    elif leaving:
        yield from box.command(lambda: box.call("retire", {"instances": leaving}))
    else:
        box.host.noop("all instances serve their release")


def _activate(box: Deployment, change: InstanceChange) -> None:
    # What leaves gives its port and memory to the first that starts, and comes back when that one fails.
    leaving = box.changes.leaving if change is box.changes.instances[0] else []
    answer = box.call("job", {"verb": "activate", "spec": {**spec(change), "instead_of": leaving}})
    how = "restarted and gated" if answer["restarted"] else "gated without a restart"
    box.host.log(f"{change.instance.name} serves {change.release.digest}: {how} in {answer['seconds']} s")
    session.of(box.host.name).gates[change.instance.name] = answer


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
