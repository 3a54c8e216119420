"""Runtimes: each stack as it is installed on a box."""

from __future__ import annotations

from pyinfra.api.operation import operation

from operations.deployment import Commands, Deployment


@operation()
def installed(box: Deployment) -> Commands:
    """
    Install each runtime of the plan that is not complete on the box.

    + box: the deployment of this box

    **Example:**

    .. code:: python

        runtime.installed(name="Runtimes", box=box)
    """
    if box.changes.runtimes:
        yield from box.command(lambda: _install_all(box))
    else:
        box.host.noop("all runtimes are complete")


def _install_all(box: Deployment) -> None:
    # much of the start-up time, which most runs do not need
    from operations import ahead
    from operations.runtime_install import install_all

    ahead.begin(box)
    install_all(box)
