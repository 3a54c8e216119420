"""Models in place, each complete or absent."""

from __future__ import annotations

from pyinfra.api.operation import operation

from operations.deployment import Commands, Deployment
from operations.model_spec import spec


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
        box.changes.models, "all models are in place", lambda model: box.call("model", spec(box.plan, model))
    )
