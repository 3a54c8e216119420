"""A box in this run, as the operations see it: what is to be done there, and how a verb of the kit is run on it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gevent.lock import RLock
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.context import ctx_host

from gpufleet.changes import Changes
from gpufleet.errors import WRONG
from gpufleet.plan import BoxPlan
from operations import looks, remote
from operations.run import Stop, command
from operations.session import installed

T = TypeVar("T")
Commands = Generator[FunctionCommand, None, None]  # what an operation yields
build_lock = RLock()  # what the controller makes for many boxes is made once


@dataclass(frozen=True)
class Deployment:
    """What is to be done on a box, and how to do it there."""

    host: Host
    plan: BoxPlan
    changes: Changes

    def call(self, verb: str, spec: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Run a verb of the kit on the box. Raises BoxError."""
        return remote.call(self.host, verb, spec, **more)

    def each(self, items: Sequence[T], nothing: str, action: Callable[[T], Any]) -> Commands:
        """`action` on each item in one command; with no item a no-op, which `nothing` gives the reason of."""
        if items:
            yield from self.command(lambda: for_each(action, items))
        else:
            self.host.noop(nothing)

    def command(self, action: Callable[[], Any]) -> Commands:
        """The one command of an operation: `action` on this box, its failure said in one line."""
        yield command(action)


def for_each(action: Callable[[T], Any], items: Iterable[T]) -> None:
    for item in items:
        action(item)


def look() -> Deployment | None:
    """What is to be done on this box; None when it fails or is left out, which the others do not mind.

    The first box that comes here has all boxes of the run looked at and checked: see operations/looks.py.
    """
    if not installed():
        raise Stop("config.py was not loaded: run pyinfra in the folder that has deploy.py and config.py", WRONG)
    # The host itself: `pyinfra.host` is whichever host the greenlet that asks is for, and boxes act for each other.
    host = ctx_host.get()
    found = looks.of_this_run().get(host.name)
    return Deployment(host, found.plan, found.changes) if found else None
