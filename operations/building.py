"""Distributions that are built from source: on the first box that needs one; every other like it gets the wheel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import gevent

from gpufleet.building import Building
from gpufleet.errors import BoxError, ConfigError
from gpufleet.patches import PatchError
from gpufleet.runtime import Runtime
from gpufleet.sdist import SdistError
from gpufleet.wheelhouse import built as records
from gpufleet.wheelhouse.items import FetchError, Item
from gpufleet.wheelhouse.store import Store
from operations.taking import take

if TYPE_CHECKING:
    from operations.deployment import Deployment

Bring = Callable[["Deployment", Sequence[Item]], object]
LOOK_SECONDS = 2.0  # how often it is looked whether another box's build has ended

# Builds that failed in this run, and how: hours on the next box would end as they did on the first.
_failed: dict[str, str] = {}


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
        with store.turn(name, _waiting(box, name)):
            if (item := records.find(store, name)) is None:
                item = _build(box, runtime, building, store, bring)
            return [item]
    except (FetchError, ConfigError, PatchError, SdistError, OSError) as error:
        cause = " ".join(str(error).split()).rstrip(".")
        raise BoxError(box.host.name, cause, "mend that on the controller, then deploy again") from error


def _build(box: Deployment, runtime: Runtime, building: Building, store: Store, bring: Bring) -> Item:
    name, settings = building.name, box.plan.settings
    if name in _failed:
        raise BoxError(box.host.name, f"{name} was not built: {_failed[name]}", "mend that, then deploy again")
    try:
        source, wheels = records.ready(building, store, settings.mirrors, settings.fetch, box.host.log)
        bring(box, [source, *wheels])
        box.host.log(f"building {name} from source on this box: it takes hours, and goes on without this connection")
        question = records.spec(runtime, building, source, wheels, settings.mirrors.git)
        answer = box.call("job", {"verb": "build", "spec": question})
        return take(box, answer["wheel"], store, name)
    except (BoxError, FetchError) as error:
        cause = error.cause if isinstance(error, BoxError) else str(error).rstrip(".")
        _failed[name] = f"{cause} (on {box.host.name})"
        raise


def _waiting(box: Deployment, name: str) -> Callable[[], object]:
    """Called again and again while another box builds the same; says so once."""
    told: list[str] = []

    def wait() -> None:
        if not told:
            told.append(name)
            box.host.log(f"another box is building {name}: waiting for it")
        gevent.sleep(LOOK_SECONDS)

    return wait


def _lack(building: Building) -> str:
    return "no CUDA toolkit" if building.toolkit is None else "no GPU of its architectures"
