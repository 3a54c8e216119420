"""Brings files to real boxes as an operation does, over pyinfra's own connections: a program of its own for the tests.

A JSON object on standard input: {"boxes": {name: {data of pyinfra}}, "items": [{filename, sha256, size}], "store": the
folder they lie in, "peers", "addresses": {sha256: url}, "pace": bytes per second of each connection, as a slower
network has it}. One JSON line comes out for each thing that a box says, and a last one
{"sent", "failed": {box: line}, "came": {box: {source: bytes}}, "seconds"}.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import operations.greenlets  # noqa: F401
from gevent.pool import Pool
from pyinfra.api import Config, Inventory, State

from gpufleet.errors import BoxError
from operations import remote
from operations.swarm import bring, swarm
from operations.wanted import Wanted

SO_MAX_PACING_RATE = 47  # asm-generic/socket.h; the socket module does not have it


@dataclass(frozen=True)
class Item:
    filename: str
    sha256: str
    size: int | None


@dataclass(frozen=True)
class Folder:
    """Stands for the controller's store."""

    root: Path

    def path(self, item: Item) -> Path:
        return self.root / item.sha256 / item.filename

    def has(self, item: Item) -> bool:
        return self.path(item).is_file()


class Box:
    """operations.deployment.Deployment without a plan."""

    def __init__(self, host: Any) -> None:
        self.host = host
        host.log = lambda text: say(box=host.name, says=text)

    def call(self, verb: str, spec: Any, **more: Any) -> dict[str, Any]:
        return remote.call(self.host, verb, spec, **more)


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main() -> None:
    given = json.load(sys.stdin)
    state = State(Inventory((list(given["boxes"].items()), {})), Config(CONNECT_TIMEOUT=20))
    state.cwd = str(Path.cwd())
    items = [Item(**item) for item in given["items"]]
    store, peers, addresses = Folder(Path(given["store"])), given.get("peers", True), given.get("addresses", {})
    failed: dict[str, str] = {}
    boxes = [Box(host) for host in state.inventory]

    def meet(box: Box) -> None:
        box.host.connector.connect()
        if pace := given.get("pace"):
            box.host.connector.client.get_transport().sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, pace)
        remote.probe(box.host, Wanted())

    def one(box: Box) -> None:
        try:
            bring(box, items, store, peers, addresses)
        except BoxError as error:
            failed[box.host.name] = str(error)

    pool = Pool(len(boxes))
    pool.map(meet, boxes)
    say(box="", says="begins")
    begun = time.monotonic()
    pool.map(one, boxes)
    came = {name: member.came for name, member in swarm.members.items()}
    say(sent=swarm.sent, failed=failed, came=came, seconds=round(time.monotonic() - begun, 2))


if __name__ == "__main__":
    main()
