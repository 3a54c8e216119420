"""The files of models on this controller: which they are, and that they are in its store, each got once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import quote

from gpufleet.errors import ConfigError
from gpufleet.models import Model, Source
from gpufleet.settings import Mirrors, Settings
from gpufleet.wheelhouse import download, hub, large, pool, web
from gpufleet.wheelhouse.download import AT_ONCE, LOOK_SECONDS, Tally
from gpufleet.wheelhouse.items import FetchError, FromHub, FromUrl, Item, once
from gpufleet.wheelhouse.mirror import of_model
from gpufleet.wheelhouse.pieces import PIECE, keep
from gpufleet.wheelhouse.progress import size
from gpufleet.wheelhouse.store import Store

Say = Callable[[str], None]
READERS = 2  # files that are read at once: more only make the disk seek


def files(model: Model, mirrors: Mirrors) -> dict[str, Item]:
    """A model's files by their path in its directory, without the one that replaces its MTP head; none for a model that
    is on the box. Files with the same bytes are one item."""
    return _of(model.source, mirrors)


def head(model: Model, mirrors: Mirrors) -> Item | None:
    """The file that replaces its MTP head, where it comes from outside."""
    wanted = model.mtp_head
    return _of(wanted.source, mirrors).get(wanted.file) if wanted else None


def items(model: Model, mirrors: Mirrors) -> list[Item]:
    """All files that a model takes from outside, its head's among them, each once."""
    replacement = head(model, mirrors)
    return once([*files(model, mirrors).values(), *([replacement] if replacement else [])])


def _of(source: Source, mirrors: Mirrors) -> dict[str, Item]:
    below = of_model(source.http, mirrors.models)
    found: dict[str, Item] = {}
    first: dict[str, Item] = {}
    for path, file in source.files.items() if source.hub or below else ():
        origin: FromHub | FromUrl
        if source.hub:
            origin = FromHub(source.hub, source.commit or "", path)
        else:
            origin = FromUrl(f"{(below or '').rstrip('/')}/{quote(path)}")
        item = Item(path.replace("/", "__"), file.sha256, file.size, origin)
        found[path] = first.setdefault(file.sha256, item)
    return found


def pieces(store: Store, item: Item) -> list[str] | None:
    """sha256 of each 16 MiB of a file that is in the store, the last may be shorter; None for a file of one or less.

    They were kept when it was checked; where they are lost the file is read again. Raises FetchError.
    """
    if (item.size or 0) <= PIECE:
        return None
    if found := store.pieces(item):
        return found
    place = store.path(item)
    with store.turn(item.sha256, lambda: time.sleep(LOOK_SECONDS)):
        if found := store.pieces(item):  # another box of this run, or another run, has just read it
            return found
        sums = large.read(place, lambda: None)
        if sums.sha256 != item.sha256:
            large.set_aside(item, store)
            raise FetchError(f"{place} was damaged, and is removed. Call it again: it is fetched anew.")
        keep(place, sums)
        return list(sums.pieces)


def ready(model: Model, store: Store, settings: Settings, say: Say, tally: Tally | None = None) -> list[Item]:
    """All files of a model, in the store; those that lack are got from outside, sizes alone are looked at.

    With `fetch.by == "boxes"` they are in the store only where they were before, see `addresses`. With `fetch.offline`
    nothing is asked for. Raises FetchError with file, cause and remedy; what came so far is kept.
    """
    found = items(model, settings.mirrors)
    lacking = [item for item in found if not store.has(item)]
    if lacking and settings.fetch.offline:
        names = ", ".join(item.filename for item in lacking)
        raise FetchError(
            f"{store.root} lacks {len(lacking)} files of the model {model.name}, and fetch.offline is set: {names}. On "
            f"a machine with internet run `gpufleet fetch --model {model.name} --archive store.tar`, bring that file "
            "here, and run `gpufleet fetch --from store.tar`."
        )
    if settings.fetch.by == "controller":
        bring(lacking, store, settings.mirrors, say, tally)
    return found


def bring(lacking: Sequence[Item], store: Store, mirrors: Mirrors, say: Say, tally: Tally | None = None) -> None:
    """Get these files into the store, several at once. Raises FetchError."""
    if not lacking:
        return
    connections = hub.connections(lacking, AT_ONCE)
    sources = large.Sources(_hub(mirrors), web.opener([]), say, connections)
    sizes = {item.sha256: item.size for item in lacking}
    try:
        download.several(
            lacking, sizes, store, lambda item, at: large.bring(item, store, sources, at), say, tally or Tally()
        )
    except OSError as error:
        raise FetchError(f"{error}. Mend that, and call it again; what came so far is kept.") from error


def mend(wanted: Iterable[Item], store: Store, mirrors: Mirrors, say: Say, tally: Tally | None = None) -> list[Item]:
    """Read all of these files that are in the store, and get anew what is wrong of them, by pieces where that can be
    told, and what lacks; returns those that were damaged. For when a box says that what came is damaged, and for
    `gpufleet fetch --model`: a deploy does not read 60 GB. Raises FetchError.
    """
    listed = once(wanted)
    there = [item for item in listed if store.has(item)]
    if there:
        say(f"reading {len(there)} files, {size(sum(item.size or 0 for item in there))}")
    try:
        found = pool.each(lambda item, stop: _sound(item, store, stop), there, READERS)
    except OSError as error:  # a store that may not be written: each file is looked at behind a lock of its own
        raise FetchError(f"{error}. Mend that, and call it again; what is there is kept.") from error
    damaged = [item for item, sound in zip(there, found, strict=True) if not sound]
    bring([item for item in listed if not store.has(item)], store, mirrors, say, tally)
    return damaged


def _sound(item: Item, store: Store, stop: pool.Stop) -> bool:
    """Whether a file is right; it loses its name when it is not."""

    def beat() -> None:
        if stop.is_set():
            raise pool.Stopped

    def wait() -> None:
        stop.wait(LOOK_SECONDS)
        beat()

    with store.turn(item.sha256, wait):
        if not store.has(item):
            return False
        sums = large.read(store.path(item), beat)
        if sums.sha256 != item.sha256:
            large.set_aside(item, store)
            return False
        if not store.pieces(item):
            keep(store.path(item), sums)
        return True


def addresses(model: Model, mirrors: Mirrors) -> dict[str, str]:
    """Where boxes get a model's files from themselves (`fetch.by == "boxes"`), by sha256; a hub's only while they are
    public, for a token never leaves this controller: see `no_token`."""
    at = web.without_login(_hub(mirrors))
    return {
        item.sha256: hub.address(item.origin, at) if isinstance(item.origin, FromHub) else item.origin.url
        for item in items(model, mirrors)
        if isinstance(item.origin, FromHub | FromUrl)
    }


def _hub(mirrors: Mirrors) -> str:
    """The hub's address. Raises FetchError for what is none."""
    try:
        return hub.checked(hub.endpoint(mirrors))
    except ConfigError as error:
        raise FetchError(str(error)) from error


def no_token(model: Model) -> str:
    """Cause and remedy, for a box whose own fetch was answered with 401 or 403."""
    where = model.source.hub or model.source.http or model.name
    return (
        f"{where} is private or gated, and a box gets no token. Set fetch.by to 'controller': this controller fetches "
        "it with its own token, and gives it on"
    )
