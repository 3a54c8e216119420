"""Models in place, each complete or absent."""

from __future__ import annotations

from pyinfra.api.operation import operation

from operations.deployment import Commands, Deployment

SECONDS = 120  # of silence: a disk that takes longer hangs


@operation()
def in_place(box: Deployment) -> Commands:
    """
    Have the files of each model of the plan that is not complete on the box, and put it in place; or link it where it
    lies. Before that `host.models`: the folder that all of them lie in.

    + box: the deployment of this box

    **Example:**

    .. code:: python

        model.in_place(name="Models", box=box)
    """
    if box.changes.models or box.changes.models_home:
        yield from box.command(lambda: _put_all(box))
    else:
        box.host.noop("all models are in place")


def _put_all(box: Deployment) -> None:
    from operations.model_put import put_all  # much of the start-up time, which most runs do not need

    if box.changes.models_home:
        box.call("models-home", {"path": box.changes.models_home}, seconds=SECONDS)
    put_all(box, box.changes.models)
