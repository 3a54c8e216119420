"""Releases: the rendered files of each instance, staged in a directory of their own."""

from __future__ import annotations

from functools import partial

from pyinfra.api.operation import operation

from operations.deployment import Commands, Deployment


@operation()
def staged(box: Deployment) -> Commands:
    """
    Stage the releases that the box lacks, and put right those that were edited there.

    + box: the deployment of this box

    **Example:**

    .. code:: python

        release.staged(name="Releases", box=box)
    """
    missing = [change.release for change in box.changes.instances if change.stage]
    specs = [{"instance": item.instance, "digest": item.digest, "files": item.files} for item in missing]
    yield from box.each(specs, "all releases are staged", partial(box.call, "release"))
