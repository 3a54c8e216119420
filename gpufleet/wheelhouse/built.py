"""Builds from source, as this controller sees them: what one needs, and the wheels that came of earlier ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpufleet import sdist
from gpufleet.building import Building
from gpufleet.paths import ROOT
from gpufleet.runtime import Runtime
from gpufleet.settings import Fetch, Mirrors
from gpufleet.wheelhouse import prepare
from gpufleet.wheelhouse.download import LOOK_SECONDS
from gpufleet.wheelhouse.items import FetchError, FromIndex, Item, Made, archive_item, uv_item, whole
from gpufleet.wheelhouse.store import Content, Store

STORE = f"{ROOT}/store"  # on a box


def needed(building: Building) -> tuple[Item, list[Item]]:
    """(the source archive as published, uv and the wheels of the build's environment).

    Raises ConfigError for a lock that cannot be read, OSError for one that is not there.
    """
    build, stack = building.build, building.stack
    if stack.uv is None:
        raise FetchError(f"{stack.name} has no lock, so nothing can be built. Set another stack.")
    pins = whole(building.lock, f"files/locks/{building.lock_path.name}", {})
    wheels = [
        Item(pin.filename, pin.sha256, pin.size, FromIndex(pin.name, pin.version, stack.torch_index)) for pin in pins
    ]
    return archive_item(build), [uv_item(stack.uv), *wheels]


def ready(
    building: Building, store: Store, mirrors: Mirrors, fetch: Fetch, say: Callable[[str], None]
) -> tuple[Item, list[Item]]:
    """(the source archive, patched; uv and the wheels), all in the store.

    Raises FetchError, ConfigError, PatchError, SdistError.
    """
    building.instead(mirrors.git)  # a mirror that no box reaches is said before anything is fetched
    archive, wheels = needed(building)
    lacking = [item.filename for item in (archive, *wheels) if not store.has(item)]
    if fetch.offline and lacking:
        raise FetchError(
            f"{building.name}: {', '.join(lacking[:8])}: not in the store, and fetch.offline is set. "
            "Get it on a connected controller, and copy its store."
        )
    prepare.bring([archive, *wheels], store, mirrors, say)
    packed = sdist.patched(store.path(archive), archive.sha256, building.series)
    for line in packed.moved:
        say(line)
    source = Item(packed.filename, packed.sha256, len(packed.data), Made())
    # Builds for other Pythons are of the same archive, and another process may be at one of them.
    with store.turn(source.sha256, lambda: time.sleep(LOOK_SECONDS)):
        if not store.has(source):
            store.write(source, packed.stream(), "what was packed here")
    return source, [store.sized(item) for item in wheels]


def spec(runtime: Runtime, building: Building, source: Item, wheels: Sequence[Item], git: str | None) -> dict[str, Any]:
    """What the kit's verb `build` needs. The same for all boxes and runs: by it a job that runs is found again."""
    uv, *others = wheels
    return {
        "name": building.name,
        "distribution": building.build.name,
        "version": building.version,
        "source": {"filename": source.filename, "sha256": source.sha256},
        "python": runtime.python,
        "uv": {"filename": uv.filename, "sha256": uv.sha256},
        "lock": building.lock,
        "files": [{"filename": item.filename, "sha256": item.sha256, "size": item.size} for item in others],
        "env": building.environment(git),
    }


def find(store: Store, name: str) -> Item | None:
    """The wheel of an earlier build of this name, while the store has it."""
    try:
        found = said(store, name)
        item = Item(found["filename"], found["sha256"], found["size"], Made())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return item if store.has(item) else None


def said(store: Store, name: str) -> dict[str, Any]:
    """What the box that made it said of it, and `box`, its name.

    Raises OSError or ValueError without a record that can be read.
    """
    found: dict[str, Any] = json.loads(record_path(store, name).read_text(encoding="utf-8"))
    return found


def keep(store: Store, name: str, wheel: Mapping[str, Any], content: Content, box: str) -> Item:
    """Take a wheel that a box has built into the store, and remember what it was built of. Raises FetchError."""
    item = Item(wheel["filename"], wheel["sha256"], wheel["size"], Made())
    store.write(item, content, box)
    record = record_path(store, name)
    record.parent.mkdir(parents=True, exist_ok=True)
    aside = record.with_suffix(".part")
    aside.write_text(json.dumps({**wheel, "box": box}))
    aside.replace(record)
    return item


def record_path(store: Store, name: str) -> Path:
    """Where it is remembered what was made; without it that is made again."""
    return store.root / "built" / f"{name}.json"
