"""Installing runtimes: their parts are got and made once on the controller, brought to the boxes, installed there.

What is compiled for a runtime is compiled on the first box that needs it; every like box gets the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gpufleet.errors import BoxError, ConfigError
from gpufleet.patches import PatchError
from gpufleet.runtime import Runtime
from gpufleet.wheelhouse import built as records
from gpufleet.wheelhouse import prepare
from gpufleet.wheelhouse.items import FetchError, Item
from gpufleet.wheelhouse.store import Store, default_root
from operations import ahead, swarm
from operations.building import built
from operations.deployment import Deployment, build_lock
from operations.once import tried, waiting
from operations.retried import with_files
from operations.runtime_spec import spec
from operations.taking import take

# What each runtime of this run is made of, by its name and the settings it was got with.
_ready: dict[tuple[str, str], list[Item]] = {}
_brought: dict[str, set[str]] = {}  # by box: the sha256 of what came ahead of its runtimes


def install_all(box: Deployment) -> None:
    """Install each runtime of the plan that is not complete on the box. Raises BoxError."""
    ahead.wait(box)
    store = Store(default_root())
    items = [item for runtime in box.changes.runtimes for item in install(box, runtime, store)]
    # What the controller has is not needed on the box any more.
    swarm.forget(box, [item for item in items if store.has(item)])


def bring_all(box: Deployment) -> None:
    """Bring what can be had for the runtimes before anything is installed on the box. Raises BoxError."""
    store = Store(default_root())
    for runtime in box.changes.runtimes:
        if runtime.stack.installable:  # else it is told when it would be installed
            items = _ready_items(box, runtime, store)
            _bring(store, box, items)
            _brought.setdefault(box.host.name, set()).update(item.sha256 for item in items)


def install(box: Deployment, runtime: Runtime, store: Store) -> list[Item]:
    """Install one runtime; returns the files it was made of. Raises BoxError."""
    if not runtime.stack.installable:
        cause = f"{runtime.stack.name} has no lock, so nothing can be installed"
        raise BoxError(box.host.name, cause, "set another `stack`")
    bring = partial(_bring, store)
    items = _ready_items(box, runtime, store) + built(box, runtime, store, bring)
    came = _brought.get(box.host.name, set())
    if lacking := [item for item in items if item.sha256 not in came]:
        bring(box, lacking)
    if runtime.stack.compile:
        _compile_once(box, runtime, items, store)
    else:
        _install(box, runtime, items, store)
    return items


def _ready_items(box: Deployment, runtime: Runtime, store: Store) -> list[Item]:
    """All that is got and made on this controller for a runtime, once for all boxes of the run. Raises BoxError."""
    settings = box.plan.settings
    key = (runtime.name, settings.mirrors.model_dump_json() + settings.fetch.model_dump_json())
    try:
        with build_lock:
            if key not in _ready:
                _ready[key] = prepare.ready(runtime, store, settings.mirrors, settings.fetch, box.host.log)
            return _ready[key]
    except (FetchError, ConfigError, PatchError, OSError) as error:
        cause = " ".join(str(error).split()).rstrip(".")
        raise BoxError(box.host.name, cause, "mend that on the controller, then deploy again") from error


def _bring(store: Store, box: Deployment, items: Sequence[Item]) -> None:
    """Have files in the box's store: from the controller, from other boxes, or from outside, as the settings say."""
    settings = box.plan.settings
    lacking = [item for item in items if not store.has(item)]
    try:
        addresses = prepare.addresses(lacking, settings.mirrors) if lacking else {}
    except FetchError as error:
        raise BoxError(box.host.name, str(error).rstrip("."), "mend that, then deploy again") from error
    swarm.bring(box, items, store, settings.fetch.peers, addresses)


def _compile_once(box: Deployment, runtime: Runtime, items: Sequence[Item], store: Store) -> None:
    """Install a runtime that has extensions: the first box compiles them, the others wait for what it made."""
    name = f"{runtime.name}-compiled"
    with store.turn(name, waiting(box, f"compiles for {runtime.name}")):
        found = records.find(store, name)
        if found is None:
            with tried(box, name, "was not made"):
                compiled = _install(box, runtime, items, store)["compiled"]
                if compiled:
                    take(box, compiled, store, name)
            return
    _bring(store, box, [found])
    _install(box, runtime, items, store, records.said(store, name))


def _install(
    box: Deployment, runtime: Runtime, items: Sequence[Item], store: Store, compiled: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """In a job: it goes on when the connection breaks, and the next deploy finds it."""
    job = {"verb": "runtime", "spec": spec(box.plan, runtime, items, compiled)}
    return with_files(box, job, items, lambda: _bring(store, box, items))
