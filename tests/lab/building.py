"""Has real boxes build as an operation does, over pyinfra's own connections: a program of its own for the tests.

A JSON object on standard input: {"boxes": {name: {data of pyinfra}}, "folder": where source and page are written,
"store": the controller's, with all that the build needs}. One JSON line comes out for each thing that a box says, and a
last one {"wheels": {box: {filename, sha256, size}}, "failed": {box: line}}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import operations.greenlets  # noqa: F401
from gevent.pool import Pool
from pyinfra.api import Config, Inventory, State

from gpufleet.errors import BoxError
from gpufleet.runtime import Runtime
from gpufleet.settings import Settings
from gpufleet.wheelhouse.store import Store
from operations import building, remote, swarm
from operations.wanted import Wanted
from tests.lab import kernels
from tests.lab.bringing import Box, say


def main() -> None:
    given = json.load(sys.stdin)
    folder, store = Path(given["folder"]), Store(Path(given["store"]))
    stack = kernels.page(folder / "files", kernels.archive(folder / kernels.ARCHIVE))
    runtime = Runtime(stack, "3.11", "13-0", ("sm75",))
    state = State(Inventory((list(given["boxes"].items()), {})), Config(CONNECT_TIMEOUT=20))
    state.cwd = str(Path.cwd())
    wheels: dict[str, Any] = {}
    failed: dict[str, str] = {}

    def bring(box: Any, items: Any) -> None:
        swarm.bring(box, items, store)

    def one(host: Any) -> None:
        box: Any = Box(host)
        box.plan = SimpleNamespace(settings=Settings(), facts={})
        try:
            (item,) = building.built(box, runtime, store, bring)
            bring(box, [item])
        except BoxError as error:
            failed[host.name] = str(error)
        else:
            wheels[host.name] = {"filename": item.filename, "sha256": item.sha256, "size": item.size}

    for host in state.inventory:
        host.connector.connect()
        remote.probe(host, Wanted())
    Pool(len(given["boxes"])).map(one, list(state.inventory))
    say(wheels=wheels, failed=failed)


if __name__ == "__main__":
    main()
