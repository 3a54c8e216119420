"""What runtimes and models of a run are made of: how much of it this controller has, how much is to be fetched.

Only names and sizes are looked at; nothing is asked for. Sizes are those of the locks and of the pages.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpufleet import model_files
from gpufleet.changes import Changes
from gpufleet.errors import ConfigError
from gpufleet.plan import BoxPlan
from gpufleet.runtime import Runtime
from gpufleet.wheelhouse import built
from gpufleet.wheelhouse.items import FetchError, Item, locked_items, stock_item
from gpufleet.wheelhouse.store import Store


@dataclass
class Coming:
    """Bytes, each file counted once.

    + lacking: to be fetched from outside; + have: in the controller's store
    + unknown: names of files to be fetched whose size nobody knows
    + to_box: what goes to each box
    """

    lacking: int = 0
    have: int = 0
    unknown: list[str] = field(default_factory=list)
    to_box: dict[str, int] = field(default_factory=dict)


def coming(boxes: Mapping[str, tuple[BoxPlan, Changes]], store: Store) -> Coming:
    """What these boxes need together. A lock that cannot be read counts as nothing: the deploy says what is wrong."""
    found, seen = Coming(), set[str]()
    of_runtime: dict[str, list[tuple[Item, int | None]]] = {}
    for name, (plan, changes) in boxes.items():
        its: dict[str, tuple[Item, int | None]] = {}
        for runtime in changes.runtimes:
            if runtime.name not in of_runtime:
                of_runtime[runtime.name] = _of_runtime(runtime)
            its |= {item.sha256: (item, size) for item, size in of_runtime[runtime.name]}
        for model in changes.models:
            its |= {item.sha256: (item, item.size) for item in model_files.items(model, plan.settings.mirrors)}
        found.to_box[name] = sum(size or 0 for _, size in its.values())
        for sha256, (item, size) in its.items():
            if sha256 not in seen:
                seen.add(sha256)
                _count(found, item, size, store)
    return found


def free(root: Path) -> int | None:
    """Bytes that are free where the store is, or will be; None when nobody can tell."""
    there = root
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        return shutil.disk_usage(there).free
    except OSError:
        return None


def _count(found: Coming, item: Item, size: int | None, store: Store) -> None:
    if store.has(item):
        found.have += size or store.sized(item).size or 0
    elif size is None:
        found.unknown.append(item.filename)
    else:
        part = min(store.part(item), size)
        found.have += part
        found.lacking += size - part


def _of_runtime(runtime: Runtime) -> list[tuple[Item, int | None]]:
    try:
        return list(_files(runtime))
    except (FetchError, ConfigError, OSError):
        return []


def _files(runtime: Runtime) -> Iterator[tuple[Item, int | None]]:
    """(file, its size in bytes) of what is published; what is made of it on the controller is no larger."""
    stack = runtime.stack
    if stack.uv is None:
        return
    uv, *locked = locked_items(runtime)
    yield uv, stack.uv.size
    yield from ((item, item.size) for item in locked)
    yield from ((stock_item(wheel, stack.torch_index), wheel.size) for wheel in stack.wheels)
    if runtime.building:
        archive, wheels = built.needed(runtime.building)
        yield archive, None
        yield from ((item, stack.uv.size if item.sha256 == stack.uv.sha256 else item.size) for item in wheels)
