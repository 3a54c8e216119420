"""Models in place, each complete or absent."""

from __future__ import annotations

from typing import Any

from pyinfra.api.operation import operation

from gpufleet.models import Model
from operations.deployment import Commands, Deployment


@operation()
def in_place(box: Deployment) -> Commands:
    """
    Fetch each model of the plan that is not complete on the box, or link it where it lies.

    + box: the deployment of this box

    **Example:**

    .. code:: python

        model.in_place(name="Models", box=box)
    """
    yield from box.each(
        box.changes.models, "all models are in place", lambda model: box.call("model", spec(box, model))
    )


def spec(box: Deployment, model: Model) -> dict[str, Any]:
    """What the kit's verb `model` needs."""
    source = model.source
    return {
        "name": model.name,
        "revision": model.revision,
        "instances": [item.name for item in box.plan.instances if item.model.name == model.name],
        "http": source.http,
        "path": source.path,
        "files": {name: {"size": file.size, "sha256": file.sha256} for name, file in source.files.items()},
    }
