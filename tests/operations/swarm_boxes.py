"""Boxes and a controller's store for tests of the swarm: what they have, what they answer, and how they fail."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent

from gpufleet.errors import BoxError
from operations.member import Ways
from operations.swarm import Swarm

GOOD, BAD = "good", "bad"


@dataclass(frozen=True)
class Item:
    filename: str
    sha256: str
    size: int | None


class Store:
    """The controller's."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, name: str, data: bytes) -> Item:
        item = Item(name, hashlib.sha256(data).hexdigest(), len(data))
        self.path(item).parent.mkdir(exist_ok=True)
        self.path(item).write_bytes(data)
        return item

    def path(self, item: Item) -> Path:
        return self.root / item.sha256 / item.filename

    def has(self, item: Item) -> bool:
        return self.path(item).exists()


class Host:
    def __init__(self, name: str) -> None:
        self.name = name
        self.said: list[str] = []

    def log(self, message: str) -> None:
        self.said.append(re.sub(r"after \d+ s", "after a while", message))


class Box:
    """A box in memory; a test puts another answer in place of one of its verbs."""

    def __init__(self, name: str, fleet: dict[str, Box]) -> None:
        self.host = Host(name)
        self.fleet = fleet
        fleet[name] = self
        self.files: dict[str, str] = {}  # GOOD or BAD
        self.parts: dict[str, int] = {}
        self.holes: dict[str, list[list[int]]] = {}
        self.specs: list[tuple[str, Mapping[str, Any]]] = []
        self.asked: list[str] = []
        self.instead: dict[str, Callable[[Mapping[str, Any]], dict[str, Any] | None]] = {}

    def call(
        self,
        verb: str,
        spec: Mapping[str, Any],
        payload: Iterable[bytes] = (),
        seconds: float | None = None,
        progress: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        self.asked.append(verb)
        self.specs.append((verb, spec))
        gevent.sleep(0)
        received = sum(len(block) for block in payload)
        if verb in self.instead and (answer := self.instead[verb](spec)) is not None:
            return answer
        found: dict[str, Any] = getattr(self, verb)(spec, received)
        if progress and verb != "stock":
            progress({"done": sum(each["size"] for each in spec["files"])})
        return found

    def stock(self, spec: Mapping[str, Any], received: int) -> dict[str, Any]:
        if spec.get("check"):
            self.files = {sha256: state for sha256, state in self.files.items() if state == GOOD}
        wanted = {each["sha256"] for each in spec["files"]}
        parts = {sha256: size for sha256, size in self.parts.items() if sha256 in wanted}
        holes = {sha256: found for sha256, found in self.holes.items() if sha256 in wanted}
        return {"have": [each for each in self.files if each in wanted], "parts": parts, "holes": holes}

    def receive(self, spec: Mapping[str, Any], received: int) -> dict[str, Any]:
        assert received == sum(_to_come(each) for each in spec["files"])
        self.files.update({each["sha256"]: GOOD for each in spec["files"]})
        return answer(got=[each["sha256"] for each in spec["files"]])

    def share(self, spec: Mapping[str, Any], received: int) -> dict[str, Any]:
        return {"port": 1, "token": "t", "addresses": [self.host.name]}

    def unshare(self, spec: Mapping[str, Any], received: int) -> dict[str, Any]:
        return {}

    def pull(self, spec: Mapping[str, Any], received: int) -> dict[str, Any]:
        found: dict[str, Any] = {"got": [], "failed": {}, "busy": []}
        for each in spec["files"]:
            peer = self.fleet.get(each["urls"][0].split("//")[1].split(":")[0])
            state = peer.files.get(each["sha256"]) if peer else GOOD
            if state == GOOD:
                self.files[each["sha256"]] = GOOD
                found["got"].append(each["sha256"])
            else:
                found["failed"][each["sha256"]] = {"cause": "no good", "wrong": state == BAD}
        return found


def _to_come(wanted: Mapping[str, Any]) -> int:
    holes = wanted.get("holes") or [[wanted["offset"], wanted["size"] - wanted["offset"]]]
    return sum(length for _, length in holes)


def answer(**more: Any) -> dict[str, Any]:
    return {"got": [], "again": {}, "damaged": [], "busy": [], "holes": {}, **more}


class Fleet:
    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.boxes: dict[str, Box] = {}
        self.swarm = Swarm()

    def box(self, name: str, *have: Item) -> Box:
        made = Box(name, self.boxes)
        made.files = {item.sha256: GOOD for item in have}
        return made

    def bring(
        self,
        *items: Item,
        peers: bool = True,
        addresses: Mapping[str, str] | None = None,
        to: Sequence[Box] = (),
        **more: Any,
    ) -> dict[str, str]:
        """To all boxes at once, or to those of `to`; what went wrong, by box."""
        failed: dict[str, str] = {}

        def one(box: Box) -> None:
            try:
                ways = Ways(peers, addresses or {}, more, {"spare": 7} if more else {})
                self.swarm.bring(box, items, self.store, ways)
            except BoxError as error:
                failed[box.host.name] = str(error)

        gevent.joinall([gevent.spawn(one, box) for box in to or self.boxes.values()], raise_error=True)
        return failed

    def all_have(self, *items: Item) -> bool:
        return all(box.files == {item.sha256: GOOD for item in items} for box in self.boxes.values())
