"""Putting models in place: got once on the controller, brought to boxes piece by piece, made there of links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from gevent.lock import RLock

from gpufleet import model_files
from gpufleet.errors import BoxError
from gpufleet.models import Model
from gpufleet.wheelhouse.items import FetchError, Item, once
from gpufleet.wheelhouse.store import Store, default_root
from operations import looks, swarm
from operations.deployment import Deployment
from operations.member import Damaged
from operations.model_spec import PLACE, places, spec

SPARE = 1 << 30  # bytes that stay free beside the models' files
GIVERS = 4  # boxes with a model that give it to those that come

# What each model of this run is made of, or why it cannot be had, by its name and the settings it was got with. A line
# that stalls does so for every box: it is not tried again for each of twenty.
_ready: dict[tuple[str, str, str], list[Item]] = {}
_failed: dict[tuple[str, str, str], str] = {}
_getting = RLock()


def put_all(box: Deployment, models: Sequence[Model]) -> None:
    """Bring the files of all of them at once, so that the room for them is looked at before. Raises BoxError."""
    store = Store(default_root())
    items = {model.name: _items(box, model, store) for model in models}
    _bring(box, models, once(item for each in items.values() for item in each), store)
    for model in models:
        box.call("model", spec(box.plan, model, items[model.name]))


def get_all(box: Deployment) -> None:
    """Have what the box's models take from outside in the controller's store, ahead of `put_all`. Raises BoxError."""
    store = Store(default_root())
    for model in box.changes.models:
        _items(box, model, store)


def _items(box: Deployment, model: Model, store: Store) -> list[Item]:
    """What the model takes from outside, in the controller's store, once for all boxes of the run. Raises BoxError."""
    settings = box.plan.settings
    key = (model.name, model.directory, settings.mirrors.model_dump_json() + settings.fetch.model_dump_json())
    with _alone(box):
        if key not in _ready and key not in _failed:
            try:
                _ready[key] = model_files.ready(model, store, settings, box.host.log)
            except (FetchError, OSError) as error:
                _failed[key] = _told(error)
        if key in _failed:
            raise BoxError(box.host.name, _failed[key], "mend that on the controller, then deploy again")
        return _ready[key]


@contextmanager
def _alone(box: Deployment) -> Iterator[None]:
    """One box at a time has something got from outside: the line is the same for all."""
    if not _getting.acquire(blocking=False):
        box.host.log("waiting for what another box has fetched")
        _getting.acquire()
    try:
        yield
    finally:
        _getting.release()


def _told(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _bring(box: Deployment, models: Sequence[Model], items: Sequence[Item], store: Store) -> None:
    """Have these files in the box's store. Of one that is damaged in the controller's only what is wrong comes anew."""
    if not items:
        return
    settings = box.plan.settings
    try:
        _spread(box, models, items, store)
    except Damaged as damaged:
        box.host.log(f"{damaged.cause}: it is mended")
        wrong = [item for item in items if item.sha256 == damaged.sha256]
        try:
            with _alone(box):
                model_files.mend(wrong, store, settings.mirrors, box.host.log)
        except (FetchError, OSError) as error:
            raise BoxError(box.host.name, _told(error), damaged.remedy) from error
        _spread(box, models, items, store)


def _spread(box: Deployment, models: Sequence[Model], items: Sequence[Item], store: Store) -> None:
    settings = box.plan.settings
    lacking = {item.sha256 for item in items if not store.has(item)}
    addresses: dict[str, str] = {}
    at: dict[str, list[str]] = {}
    for model in models:
        if lacking:
            addresses |= model_files.addresses(model, settings.mirrors)
        for sha256, where in places(model).items():
            at.setdefault(sha256, []).extend(where)
    outside = {sha256: url for sha256, url in addresses.items() if sha256 in lacking}
    more = {item.sha256: _more(box, item, store, at) for item in items}
    if settings.fetch.peers:
        for model in models:
            _offered(box, model, items, more)
    room = {"spare": SPARE, "what": " and ".join(model.name for model in models)}
    swarm.bring(box, items, store, settings.fetch.peers, outside, more, room)


def _offered(box: Deployment, model: Model, items: Sequence[Item], more: Mapping[str, Mapping[str, Any]]) -> None:
    """Boxes where the model is in place give it to this one; a few are enough, those that come give it on."""
    its = {file.sha256 for file in model.source.files.values()}
    wanted = [item for item in items if item.sha256 in its]
    for giver in islice(having(box, model), GIVERS):
        with suppress(BoxError):  # it is seen to where that box is deployed
            swarm.offer(giver, wanted, more)


def having(box: Deployment, model: Model) -> Iterator[Deployment]:
    """The other boxes of this run that have the model, and may give it."""
    decided = looks.of_this_run()
    for host in looks.active_hosts():
        found = decided[host.name]
        same = any((each.name, each.directory) == (model.name, model.directory) for each in found.plan.models)
        lacks = any(each.name == model.name for each in found.changes.models)
        if host.name != box.host.name and same and not lacks and found.plan.settings.fetch.peers:
            yield Deployment(host, found.plan, found.changes)


def _more(box: Deployment, item: Item, store: Store, at: Mapping[str, list[str]]) -> dict[str, Any]:
    more: dict[str, Any] = {"place": PLACE, "at": at.get(item.sha256, [])}
    try:
        pieces = model_files.pieces(store, item) if store.has(item) else None
    except (FetchError, OSError) as error:
        raise BoxError(box.host.name, _told(error), "see to that, then deploy again") from error
    return more | ({"pieces": pieces} if pieces else {})
