"""One large file of a model: got, read once, put into the store with its pieces' hashes; mended where it is bad."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpufleet.wheelhouse import child, hub, left, pieces, web
from gpufleet.wheelhouse.child import ChildError
from gpufleet.wheelhouse.download import At
from gpufleet.wheelhouse.items import FetchError, FromHub, FromUrl, Item
from gpufleet.wheelhouse.pieces import Sums
from gpufleet.wheelhouse.store import DAMAGED, PART, Store
from hostkit import fetch
from hostkit.errors import Failure

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sources:
    """Where files come from.

    + hub: its address; open_url: what opens another server's; + connections: to the hub, for one file
    """

    hub: str
    open_url: fetch.Open
    say: Say
    connections: int = 1


def bring(item: Item, store: Store, sources: Sources, at: At) -> int:
    """Have a file in the store, for who has its turn; returns the bytes that came. Raises FetchError, OSError.

    What came of it earlier is gone on with. A file there with wrong bytes gets only those that are wrong.
    """
    place = store.path(item)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():  # of another size, or it would not be asked for
        set_aside(item, store)
    damaged = place.with_name(item.filename + DAMAGED)
    came = _mended(item, store, sources, at) if damaged.exists() else None
    return came if came is not None else _whole(item, store, sources, at)


def set_aside(item: Item, store: Store) -> None:
    """A damaged file loses its name: what is right in it is kept where that can be told."""
    place = store.path(item)
    if store.pieces(item):
        place.replace(place.with_name(item.filename + DAMAGED))
    else:
        place.unlink()


def read(path: Path, beat: Callable[[], object]) -> Sums:
    """What a file is, read in a process of its own: a deploy must not stand still meanwhile. Raises FetchError."""
    try:
        return child.run({"path": str(path), "ranges": []}, lambda done: beat(), {})
    except ChildError as error:
        raise FetchError(f"{path} cannot be read: {error}. Mend that, and call it again.") from None


def _whole(item: Item, store: Store, sources: Sources, at: At) -> int:
    place = store.path(item)
    part = place.with_name(item.filename + PART)
    found, came = _get(item, part, sources, at)
    if found.sha256 != item.sha256:  # on the way, or of an earlier run that a power cut ended
        _drop(part)
        sources.say(f"{item.filename} came with wrong bytes, and is fetched once more")
        found, more = _get(item, part, sources, at)
        came += more
    if found.sha256 != item.sha256:
        _drop(part)
        where = web.without_login(_address(item, sources))
        raise FetchError(
            f"{item.filename}: {where} gave sha256 {found.sha256} twice, not {item.sha256}, which the model's page "
            "names. The source changed, or what is between damages it: try another mirror, or `gpufleet models add`."
        )
    _settle(part, place, store, found)
    return came


def _drop(part: Path) -> None:
    part.unlink(missing_ok=True)
    left.drop(part)


def _mended(item: Item, store: Store, sources: Sources, at: At) -> int | None:
    """Get what is wrong of a file; None when that did not make it right, and it has to come whole."""
    place = store.path(item)
    damaged, size = place.with_name(item.filename + DAMAGED), item.size or 0
    right = store.pieces(item)
    wrong: list[tuple[int, int]] = []
    if right:
        if damaged.stat().st_size > size:
            os.truncate(damaged, size)
        wrong = pieces.holes(size, right, read(damaged, lambda: at(0)).pieces)
        lacking = sum(length for _, length in wrong)
        sources.say(f"{item.filename} was damaged: {lacking >> 20} MiB of {size >> 20} MiB are fetched anew")
        found = _get(item, damaged, sources, at, wrong)[0]
        if found.sha256 == item.sha256:
            _settle(damaged, place, store, found)
            return lacking
    damaged.unlink()
    return None


def _get(
    item: Item, path: Path, sources: Sources, at: At, holes: list[tuple[int, int]] | None = None
) -> tuple[Sums, int]:
    if holes is None:
        if isinstance(item.origin, FromUrl) and left.read(path, item.size or 0) is not None:
            _drop(path)  # a hub's, that came out of order: a plain server's goes on at its end only
        path.touch()  # an empty file has no bytes that would make it
    if isinstance(item.origin, FromHub):
        return hub.fetch(item, item.origin, sources.hub, path, at, sources.say, time.sleep, holes, sources.connections)
    url = _address(item, sources)
    before = fetch.length(str(path))
    try:
        if holes is None:
            fetch.fetch_part(url, str(path), item.size, at, sources.open_url, fetch.TRIES)
            came = max(0, fetch.length(str(path)) - before)
        else:
            came = _ranges(item, url, path, sources, at, holes)
    except Failure as error:
        remedy = error.remedy[:1].upper() + error.remedy[1:]
        raise FetchError(f"{item.filename}: {error.cause}. {remedy}.") from error
    return read(path, lambda: at(item.size or 0)), came


def _ranges(item: Item, url: str, path: Path, sources: Sources, at: At, holes: list[tuple[int, int]]) -> int:
    """These ranges of a file of a plain server, several times where that does not give them. Raises FetchError."""
    size = item.size or 0
    done = 0
    for offset, length in holes:
        for number in range(fetch.TRIES):
            try:
                _range(url, path, offset, length, sources, lambda here: at(min(size, here)))
                break
            except fetch.UNFETCHED as error:
                if number == fetch.TRIES - 1:
                    raise FetchError(
                        f"{item.filename}: cannot fetch a part of {web.without_login(url)}: {error}. Check the network "
                        f"and the mirrors setting; {hub.KEPT}."
                    ) from error
                time.sleep(2**number)
        done += length
    return done


def _range(url: str, path: Path, offset: int, length: int, sources: Sources, at: At) -> None:
    request = urllib.request.Request(url, headers={"Range": f"bytes={offset}-{offset + length - 1}"})
    with sources.open_url(request) as answer, path.open("r+b") as out:
        before = 0 if answer.status == 206 else offset  # who knows no ranges sends all
        out.seek(offset)
        while length and (block := answer.read1(1 << 20)):
            skipped = min(before, len(block))
            before -= skipped
            wanted = block[skipped : skipped + length]
            out.write(wanted)
            length -= len(wanted)
            at(out.tell())
    if length:
        raise OSError(f"the connection ended {length} bytes too soon")


def _address(item: Item, sources: Sources) -> str:
    if isinstance(item.origin, FromHub):
        return hub.address(item.origin, sources.hub)
    if isinstance(item.origin, FromUrl):
        return item.origin.url
    raise FetchError(f"{item.filename} comes from nowhere outside. Look at the model's page.")


def _settle(aside: Path, place: Path, store: Store, found: Sums) -> None:
    pieces.keep(place, found)
    aside.chmod(0o644)
    store.settle(aside, place)
