"""Distributions that are built from source: on the first box that needs one; every other like it gets the wheel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpufleet.building import Building
from gpufleet.errors import BoxError, ConfigError
from gpufleet.patches import PatchError
from gpufleet.runtime import Runtime
from gpufleet.sdist import SdistError
from gpufleet.wheelhouse import built as records
from gpufleet.wheelhouse.items import FetchError, Item
from gpufleet.wheelhouse.store import Store
from operations.once import tried, waiting
from operations.taking import take

if TYPE_CHECKING:
    from operations.deployment import Deployment

Bring = Callable[["Deployment", Sequence[Item]], object]


def built(box: Deployment, runtime: Runtime, store: Store, bring: Bring) -> list[Item]:
    """The wheel that a runtime's build makes, in the controller's store; none for a runtime that builds nothing.

    Where there is none yet this box builds it, which takes hours, and the others that need it wait.
    + bring: gets files into the box's store
    Raises BoxError.
    """
    building = runtime.building
    if building is None:
        return []
    if building.toolkit is None or not building.archs:
        raise BoxError(
            box.host.name,
            f"{building.build.name} is built from source, for which this box has {_lack(building)}",
            "set another `stack`, or take `toolkit` out of `host`",
        )
    try:
        name = building.name
        with store.turn(name, waiting(box, f"is building {name}")):
            if (item := records.find(store, name)) is None:
                item = _build(box, runtime, building, store, bring)
            return [item]
    except (FetchError, ConfigError, PatchError, SdistError, OSError) as error:
        cause = " ".join(str(error).split()).rstrip(".")
        raise BoxError(box.host.name, cause, "mend that on the controller, then deploy again") from error


def _build(box: Deployment, runtime: Runtime, building: Building, store: Store, bring: Bring) -> Item:
    name, settings = building.name, box.plan.settings
    with tried(box, name, "was not built"):
        source, wheels = records.ready(building, store, settings.mirrors, settings.fetch, box.host.log)
        bring(box, [source, *wheels])
        box.host.log(f"building {name} from source on this box: it takes hours, and goes on without this connection")
        question = records.spec(runtime, building, source, wheels, settings.mirrors.git)
        answer = box.call("job", {"verb": "build", "spec": question})
        return take(box, answer["wheel"], store, name)


def _lack(building: Building) -> str:
    return "no CUDA toolkit" if building.toolkit is None else "no GPU of its architectures"
