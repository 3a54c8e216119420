"""Gets files into the store: from servers several at once and resumed, from this machine by copying."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpufleet.wheelhouse import pool, rate, web
from gpufleet.wheelhouse.index import Address, Finder
from gpufleet.wheelhouse.items import FetchError, Item, once
from gpufleet.wheelhouse.progress import Progress, size
from gpufleet.wheelhouse.store import Store
from hostkit.errors import Failure
from hostkit.fetch import Open, fetch_file

AT_ONCE = 4
LOOK_SECONDS = 0.5  # how often a file that another process fetches is looked at

At = Callable[[int], None]  # bytes of the file that are here; raises pool.Stopped when it is to end


@dataclass
class Tally:
    """What came from outside this machine."""

    files: int = 0
    bytes: int = 0


def get(items: Iterable[Item], store: Store, finder: Finder, say: Callable[[str], None], tally: Tally) -> None:
    """Get all that the store lacks. Raises FetchError; what came so far stays, also as parts of files."""
    lacking = [item for item in once(items) if not store.has(item)]
    if not lacking:
        return
    addresses = finder.addresses(lacking)
    lacking = [item for item in lacking if item.sha256 in addresses]  # a finder of local files finds some of them
    sizes = {item.sha256: addresses[item.sha256].size or item.size for item in lacking}
    open_url = web.opener(finder.places.known)
    several(
        lacking, sizes, store, lambda item, at: _bring(item, addresses[item.sha256], store, at, open_url), say, tally
    )


def several(
    lacking: Sequence[Item],
    sizes: Mapping[str, int | None],
    store: Store,
    bring: Callable[[Item, At], int],
    say: Callable[[str], None],
    tally: Tally,
) -> None:
    """Have each of these files brought into the store, several at once, each by one process. Raises FetchError.

    + sizes: by sha256, None where unknown
    + bring: puts one file into the store, tells how many bytes of it are here, returns how many came from outside
    """
    have = {item.sha256: store.part(item) for item in lacking}
    needed = sum(max(0, (sizes[sha256] or 0) - have[sha256]) for sha256 in sizes)
    store.check_room(needed)
    if lacking:
        say(f"{len(lacking)} files, {size(needed)} to fetch")
    names = _names(lacking)
    progress = Progress(
        {names[sha256]: length for sha256, length in sizes.items()},
        {names[sha256]: length for sha256, length in have.items()},
        say,
    )
    lock, began, before = threading.Lock(), time.monotonic(), tally.bytes

    def one(item: Item, stop: threading.Event) -> None:
        told = False

        def wait() -> None:
            nonlocal told
            if not told:
                say(f"waiting for another process, which fetches {item.filename}")
                told = True
            if stop.wait(LOOK_SECONDS):
                raise pool.Stopped

        def at(done: int) -> None:
            progress.at(names[item.sha256], done)
            if stop.is_set():
                raise pool.Stopped

        with store.turn(item.sha256, wait):
            if store.has(item):  # by another process
                return
            progress.begin(names[item.sha256])
            came = bring(item, at)
            progress.end(names[item.sha256])
        with lock:
            tally.files += 1 if came else 0
            tally.bytes += came

    # The large ones first: then the last minutes are not spent on one of them alone.
    pool.each(one, sorted(lacking, key=lambda item: -(sizes[item.sha256] or 0)), AT_ONCE)
    rate.keep(store.root, tally.bytes - before, time.monotonic() - began)


def _names(items: Sequence[Item]) -> dict[str, str]:
    """What files are called, by sha256; several models have a `config.json`."""
    often = Counter(item.filename for item in items)
    more = {item.sha256: f" ({item.sha256[:8]})" if often[item.filename] > 1 else "" for item in items}
    return {item.sha256: item.filename + more[item.sha256] for item in items}


def _bring(item: Item, address: Address, store: Store, at: Callable[[int], None], open_url: Open) -> int:
    """One file; returns the bytes that came from a server."""
    if address.path is not None:
        store.put(item, address.path)
        at(address.size or 0)
        return 0
    before = store.part(item)
    try:
        fetch_file(address.url, str(store.path(item)), item.sha256, item.size, at, open_url)
    except Failure as error:
        remedy = error.remedy[:1].upper() + error.remedy[1:]
        raise FetchError(f"{item.filename}: {error.cause}. {remedy}.") from error
    return max(0, (store.sized(item).size or 0) - before)
