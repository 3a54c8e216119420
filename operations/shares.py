"""The servers by which boxes give files to each other: started when the first file is asked for, ended with the run."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

from gevent.lock import RLock
from gevent.pool import Pool

from gpufleet.errors import BoxError

START_SECONDS = 60
KEPT_SECONDS = 300  # a server ends by itself when nobody asks it for ten minutes


class Named(Protocol):
    @property
    def name(self) -> str: ...
    def log(self, message: str) -> Any: ...


class Box(Protocol):
    """A box of this run: operations.deployment.Deployment, as far as files need it."""

    @property
    def host(self) -> Named: ...
    def call(self, verb: str, spec: Mapping[str, Any], **more: Any) -> dict[str, Any]: ...


class Shares:
    """Where each box's store is served, by box."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Box, list[str]]] = {}  # when it was asked, the box, addresses
        self._locks: dict[str, RLock] = {}

    def of(self, box: Box) -> list[str]:
        """The addresses of a box's store, with its token; none when others do not know how to reach it.

        Raises BoxError when the box cannot serve it.
        """
        name = box.host.name
        with self._locks.setdefault(name, RLock()):
            asked, _, addresses = self._known.get(name, (0.0, box, []))
            if not addresses or time.monotonic() - asked > KEPT_SECONDS:
                told = box.call("share", {}, seconds=START_SECONDS)
                addresses = [f"http://{_bracketed(at)}:{told['port']}/{told['token']}" for at in told["addresses"]]
                self._known[name] = (time.monotonic(), box, addresses)
            return addresses

    def end(self, names: Collection[str]) -> None:
        """End the servers of these boxes: nobody wants anything any more. The others end by themselves."""

        def end(name: str) -> None:
            with self._locks[name], suppress(BoxError):
                if known := self._known.pop(name, None):
                    known[1].call("unshare", {}, seconds=START_SECONDS)

        Pool(50).map(end, [name for name in self._known if name in names])


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
