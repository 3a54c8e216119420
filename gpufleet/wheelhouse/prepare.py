"""Gets and makes on this controller all that a box needs for a runtime."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from zipfile import BadZipFile

from gpufleet import wheel
from gpufleet.parts import Source, Wheel
from gpufleet.patches import PatchError
from gpufleet.runtime import Runtime
from gpufleet.settings import Fetch, Mirrors
from gpufleet.stacks import Stack
from gpufleet.wheelhouse import source
from gpufleet.wheelhouse.download import LOOK_SECONDS, Tally, get
from gpufleet.wheelhouse.git import Git, GitError
from gpufleet.wheelhouse.index import Finder
from gpufleet.wheelhouse.items import FetchError, Item, Made, locked_items, once, stock_item
from gpufleet.wheelhouse.pack import DamagedError, WheelError
from gpufleet.wheelhouse.places import places
from gpufleet.wheelhouse.store import Store

Say = Callable[[str], None]


def ready(
    runtime: Runtime, store: Store, mirrors: Mirrors, fetch: Fetch, say: Say, tally: Tally | None = None
) -> list[Item]:
    """All files a box needs for a runtime, in the store: uv first, the lock's wheels, then what was made here.

    With `fetch.by == "boxes"` wheels of the lock are in the store only where they were before, or lie on this machine:
    for the others see `addresses`. With `fetch.offline` nothing is asked for.
    + tally: counts what came from outside
    Raises FetchError, ConfigError for a wrong lock.
    """
    stack = runtime.stack
    uv, *locked = locked_items(runtime)
    made, lacking = _at_hand(stack, store, mirrors)
    unmade = [part for part in _parts(stack) if part.name not in made]
    if fetch.offline:
        names = [_short(item.filename) for item in [uv, *locked] if not store.has(item)]
        if names or lacking:
            raise FetchError(_offline(runtime, store, [*names, *lacking.values()]))
    else:
        stock = [stock_item(part, stack.torch_index) for part in unmade if isinstance(part, Wheel)]
        by_boxes = fetch.by == "boxes"
        bring([uv, *stock, *([] if by_boxes else locked)], store, mirrors, say, tally)
        if by_boxes:
            bring(locked, store, mirrors, say, tally, local_only=True)
        git = Git(store.git, mirrors.git)
        for part in unmade:
            say(f"making the wheel of {part.name} {part.version}")
            made[part.name] = make(part, stack, store, git)
    return once([*(store.sized(item) if store.has(item) else item for item in [uv, *locked]), *made.values()])


def published(runtime: Runtime, store: Store, mirrors: Mirrors, say: Say, tally: Tally) -> list[Item]:
    """The wheels that are repacked, as published, in the store. Raises FetchError."""
    items = [stock_item(part, runtime.stack.torch_index) for part in runtime.stack.wheels]
    bring(items, store, mirrors, say, tally)
    return [store.sized(item) for item in items]


def addresses(items: Iterable[Item], mirrors: Mirrors) -> dict[str, str]:
    """Where boxes get files from themselves, by hash; without those that only this machine has.

    Raises FetchError when a file is nowhere.
    """
    wanted = [item for item in items if not isinstance(item.origin, Made)]
    found = Finder(places(mirrors)).addresses(wanted)
    return {sha256: address.url for sha256, address in found.items() if address.url}


def bring(
    items: Sequence[Item],
    store: Store,
    mirrors: Mirrors,
    say: Say,
    tally: Tally | None = None,
    *,
    local_only: bool = False,
) -> None:
    """Get into the store what it lacks of these. Raises FetchError."""
    for item in items:
        if item.size is None and store.drop_damaged(item):
            say(f"{item.filename} was damaged in {store.root}, and is fetched anew")
    if all(store.has(item) for item in items):
        return  # pip is not asked for its configuration then
    try:
        get(items, store, Finder(places(mirrors), local_only), say, tally or Tally())
    except OSError as error:
        raise FetchError(f"{error}. Mend that, and call it again; what came so far is kept.") from error


def make(part: Wheel | Source, stack: Stack, store: Store, git: Git) -> Item:
    """A repacked wheel, or the wheel of a source; found in the store the second time. Raises FetchError."""
    try:
        return _make(part, stack, store, git)
    except PatchError as error:
        raise FetchError(
            f"{stack.name}: {error}. Mend the patch: `gpufleet patches check {stack.name}` tells of each hunk."
        ) from error
    except (WheelError, GitError) as error:
        raise FetchError(f"{stack.name}: {error}") from error
    except (OSError, BadZipFile) as error:
        raise FetchError(
            f"{stack.name}: the wheel of {part.name} cannot be made in {store.made}: {error}. "
            "Mend that, or free space there, and call it again."
        ) from error


def _make(part: Wheel | Source, stack: Stack, store: Store, git: Git) -> Item:
    patches = stack.files / "patches"
    with store.turn("made", lambda: time.sleep(LOOK_SECONDS)):
        for left in store.made.glob(".*"):  # by one that was killed: it is our turn, so nobody else writes there
            shutil.rmtree(left, ignore_errors=True)
        if isinstance(part, Source):
            done = source.build(part, patches, store.made, git)
        else:
            stock = stock_item(part, stack.torch_index)
            try:
                done = wheel.repack(store.path(stock), part, patches, store.made, git)
            except DamagedError as error:  # then it is as if it had never been here
                error.path.unlink()
                raise FileNotFoundError(errno.ENOENT, "it was damaged, and is removed", str(error.path)) from error
        return store.link(done.path, done.sha256)


def _parts(stack: Stack) -> list[Wheel | Source]:
    return [*stack.wheels, *stack.sources]


def _at_hand(stack: Stack, store: Store, mirrors: Mirrors) -> tuple[dict[str, Item], dict[str, str]]:
    """What is made, or can be without any network, by name; and of the other parts what lacks."""
    git = Git(store.git, mirrors.git, offline=True)
    made: dict[str, Item] = {}
    lacking: dict[str, str] = {}
    for part in _parts(stack):
        try:
            made[part.name] = _make(part, stack, store, git)
        except FileNotFoundError:
            lacking[part.name] = f"{part.name} {part.version}"
        except GitError as error:
            lacking[part.name] = f"{part.name} {part.version} ({error})"
        except (WheelError, PatchError, OSError, BadZipFile):
            make(part, stack, store, git)  # which says it
    return made, lacking


def _offline(runtime: Runtime, store: Store, names: Sequence[str]) -> str:
    wanted = f"--stack {runtime.stack.name} --python {runtime.python}"
    return (
        f"{store.root} lacks {len(names)} files of {runtime.stack.name} for Python {runtime.python}, and fetch.offline "
        f"is set: {', '.join(names)}. On a machine with internet run `gpufleet fetch {wanted} --archive "
        "store.tar`, bring that file here, and run `gpufleet fetch --from store.tar`."
    )


def _short(filename: str) -> str:
    """`torch 2.13.0` of a wheel's file name."""
    return " ".join(filename.split("-")[:2])


def made_folder(store: Store, item: Item) -> Path | None:
    """The folder a made wheel is kept in, named by what it was made of; None for what was not made here."""
    if not isinstance(item.origin, Made):
        return None
    found = (path for path in store.made.glob(f"*/{item.filename}") if path.stat().st_size == item.size)
    return next((path.parent for path in found), None)
