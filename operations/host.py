"""The box itself: cards, processor and kernel as its owner set them, now and at each boot."""

from __future__ import annotations

from pyinfra.api.operation import operation

from gpufleet import host
from operations.deployment import Commands, Deployment

SECONDS = 120  # of silence: a driver that takes longer hangs


@operation()
def settings(box: Deployment) -> Commands:
    """
    Set persistence mode, power limits, CPU governor, overcommit, swappiness and the box's name in /etc/hosts, where
    they differ from the settings `host`, and have them set again at each boot.

    What a box refuses, such as kernel values in a container, is said and does not fail it.

    + box: the deployment of this box

    **Example:**

    .. code:: python

        host.settings(name="Host settings", box=box)
    """
    if not box.changes.host:
        box.host.noop("the box is set as wanted")
        return
    yield from box.command(lambda: _apply(box))


def _apply(box: Deployment) -> None:
    # The kit says itself, line by line, what differed and what could not be set.
    box.call("host", host.wanted(box.plan), seconds=SECONDS)
