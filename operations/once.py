"""What one box makes for all like it: the others wait their turn, and none tries again what fails everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import gevent

from gpufleet.errors import BoxError

if TYPE_CHECKING:
    from operations.deployment import Deployment

LOOK_SECONDS = 1.0  # how often it is looked whether another box is done

# What failed in this run, and how: minutes or hours on the next box would end as they did on the first.
_failed: dict[str, str] = {}


@contextmanager
def tried(box: Deployment, name: str, undone: str) -> Iterator[None]:
    """One box's try at making `name`, by who has its turn.

    Only what the kit says of the compiling itself (BoxError.everywhere) is remembered. A full disk, a compiler that was
    ended, a connection that broke, what is wrong on the controller: after those the next box tries.
    + undone: `was not built`
    Raises BoxError where an earlier box's try has shown that it fails on every like box.
    """
    if name in _failed:
        raise BoxError(box.host.name, f"{name} {undone}: {_failed[name]}", "mend that, then deploy again")
    try:
        yield
    except BoxError as error:
        if error.everywhere:
            _failed[name] = f"{error.cause} (on {box.host.name})"
        raise


def waiting(box: Deployment, doing: str) -> Callable[[], object]:
    """For Store.turn: called again and again while another box has it, which `doing` tells; says so once."""
    told: list[str] = []

    def wait() -> None:
        if not told:
            told.append(doing)
            box.host.log(f"another box {doing}: waiting for it")
        gevent.sleep(LOOK_SECONDS)

    return wait
