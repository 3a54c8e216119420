"""Distributions that are built from source: on the first box that needs one; every other like it gets the wheel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpufleet.building import Building
from gpufleet.errors import BoxError, ConfigError
from gpufleet.patches import PatchError
from gpufleet.rules.look import numbers
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
            _check_system(box, records.said(store, name), records.record_path(store, name))
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


def _check_system(box: Deployment, said: Mapping[str, Any], record: Path) -> None:
    """A wheel that was built here names no oldest system as published ones do: it runs where the C library is at least
    that of the box it was built on. Raises BoxError.
    """
    theirs, ours = said.get("glibc"), (box.plan.facts.get("os") or {}).get("glibc")
    if theirs and ours and numbers(ours) < numbers(theirs):
        raise BoxError(
            box.host.name,
            f"{said['filename']} was built on {said.get('box')}, whose system has glibc {theirs}; this box has {ours}, "
            "where it may not load",
            f"let the box with the oldest system build it: delete {record} on this controller, then deploy to that box "
            "alone (`--limit`), then to all",
        )


def _lack(building: Building) -> str:
    return "no CUDA toolkit" if building.toolkit is None else "no GPU of its architectures"
