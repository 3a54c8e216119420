"""The swarm among boxes that are made up: what boxes answer, and what is done then."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
import pytest

from gpufleet.errors import BoxError
from operations import swarm as operation
from operations.member import TRIES
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
        self.path(item).write_bytes(data)
        return item

    def path(self, item: Item) -> Path:
        return self.root / item.filename

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
        gevent.sleep(0)
        received = sum(len(block) for block in payload)
        if verb in self.instead and (answer := self.instead[verb](spec)) is not None:
            return answer
        found: dict[str, Any] = getattr(self, verb)(spec, received)
        if progress:
            progress({"done": sum(each["size"] for each in spec["files"])})
        return found

    def stock(self, spec: Mapping[str, Any], received: int) -> dict[str, Any]:
        if spec.get("check"):
            self.files = {sha256: state for sha256, state in self.files.items() if state == GOOD}
        wanted = {each["sha256"] for each in spec["files"]}
        parts = {sha256: size for sha256, size in self.parts.items() if sha256 in wanted}
        return {"have": [each for each in self.files if each in wanted], "parts": parts}

    def receive(self, spec: Mapping[str, Any], received: int) -> dict[str, Any]:
        assert received == sum(each["size"] - each["offset"] for each in spec["files"])
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


def answer(**more: Any) -> dict[str, Any]:
    return {"got": [], "again": {}, "damaged": [], "busy": [], **more}


class Fleet:
    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.boxes: dict[str, Box] = {}
        self.swarm = Swarm()

    def box(self, name: str, *have: Item) -> Box:
        made = Box(name, self.boxes)
        made.files = {item.sha256: GOOD for item in have}
        return made

    def bring(self, *items: Item, peers: bool = True, addresses: Mapping[str, str] | None = None) -> dict[str, str]:
        """To all boxes at once; what went wrong, by box."""
        failed: dict[str, str] = {}

        def one(box: Box) -> None:
            try:
                self.swarm.bring(box, items, self.store, peers, addresses or {})
            except BoxError as error:
                failed[box.host.name] = str(error)

        gevent.joinall([gevent.spawn(one, box) for box in self.boxes.values()], raise_error=True)
        return failed

    def all_have(self, *items: Item) -> bool:
        return all(box.files == {item.sha256: GOOD for item in items} for box in self.boxes.values())


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(operation, "BUSY_SECONDS", 0.001)
    return Fleet(tmp_path)


def test_one_copy_from_the_controller_and_the_servers_end(fleet: Fleet) -> None:
    item = fleet.store.add("a.whl", b"a" * 1000)
    boxes = [fleet.box(name) for name in ("one", "two", "three")]
    assert fleet.bring(item) == {}
    assert fleet.all_have(item) and fleet.swarm.sent == 1000
    shared = [box for box in boxes if "share" in box.asked]
    assert shared and all(box.asked[-1] == "unshare" for box in shared)
    assert fleet.bring(item) == {} and fleet.swarm.sent == 1000


def test_what_a_box_has_that_answers_late_is_not_sent_to_others(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    item = fleet.store.add("a.whl", b"a" * 1000)
    fleet.box("empty")
    fleet.box("full", item).instead["stock"] = lambda spec: gevent.sleep(0.2)
    assert fleet.bring(item) == {} and fleet.swarm.sent == 0
    monkeypatch.setattr(operation, "LOOK_SECONDS", 0.0)
    fleet.swarm = Swarm()
    fleet.boxes["empty"].files.clear()
    assert fleet.bring(item) == {} and fleet.swarm.sent == 1000, "but it is not waited for for ever"


def test_what_a_box_says(fleet: Fleet) -> None:
    item = fleet.store.add("a.whl", b"a" * (3 << 20))
    boxes = fleet.box("one"), fleet.box("two")
    fleet.bring(item)
    assert [box.host.said[0] for box in boxes] == ["1 file to come, 3.0 MiB"] * 2
    assert sorted(box.host.said[-1] for box in boxes) == [
        "all files are here after a while: 3.0 MiB from other boxes",
        "all files are here after a while: 3.0 MiB from the controller",
    ]


def test_without_peers_nothing_is_shared(fleet: Fleet) -> None:
    item = fleet.store.add("a.whl", b"a" * 1000)
    boxes = [fleet.box(name) for name in ("one", "two")]
    assert fleet.bring(item, peers=False) == {}
    assert fleet.swarm.sent == 2000 and not any("share" in box.asked for box in boxes)


def test_a_peer_that_cannot_share_costs_nobody_anything(fleet: Fleet) -> None:
    item = fleet.store.add("a.whl", b"a" * 1000)
    one, two = fleet.box("one", item), fleet.box("two")

    def share(spec: Mapping[str, Any]) -> dict[str, Any]:
        raise BoxError("one", "systemd is in a bad mood", "look")

    one.instead["share"] = share
    assert fleet.bring(item) == {}
    assert fleet.all_have(item) and fleet.swarm.sent == 1000
    assert "one gives nothing to other boxes: systemd is in a bad mood" in two.host.said


def test_a_peer_at_no_known_address(fleet: Fleet) -> None:
    item = fleet.store.add("a.whl", b"a" * 1000)
    one, _ = fleet.box("one", item), fleet.box("two")
    one.instead["share"] = lambda spec: {"port": 1, "token": "t", "addresses": []}
    assert fleet.bring(item) == {} and fleet.swarm.sent == 1000


def test_a_copy_that_goes_bad_in_the_middle_is_taken_from_elsewhere_and_made_good(fleet: Fleet) -> None:
    items = [fleet.store.add(name, name.encode() * (9 << 20)) for name in ("a", "b")]
    one, two, three = fleet.box("one", items[0]), fleet.box("two"), fleet.box("three")
    looked: list[str] = []

    def stock(spec: Mapping[str, Any]) -> dict[str, Any] | None:
        """It goes bad after the first look at it."""
        looked.append("")
        if len(looked) > 1:
            return None
        one.files[items[0].sha256] = BAD
        return {"have": [items[0].sha256], "parts": {}}

    one.instead["stock"] = stock
    assert fleet.bring(*items) == {}
    assert len(looked) > 1
    said = two.host.said + three.host.said
    assert "a does not come from one (no good): taking it from elsewhere" in said
    assert all(box.files == {item.sha256: GOOD for item in items} for box in (two, three))
    assert BAD not in one.files.values()


def test_another_deploy_brings_the_same_file(fleet: Fleet) -> None:
    item = fleet.store.add("a.whl", b"a" * 1000)
    box, times = fleet.box("one"), []

    def receive(spec: Mapping[str, Any]) -> dict[str, Any]:
        times.append(spec)
        if len(times) == 3:
            box.files[item.sha256] = GOOD  # the other one is done
        return answer(busy=[item.sha256])

    box.instead["receive"] = receive
    assert fleet.bring(item) == {} and len(times) == 3


def test_a_part_that_has_grown_meanwhile(fleet: Fleet) -> None:
    item = fleet.store.add("a.whl", b"a" * 1000)
    box, offsets = fleet.box("one"), []
    box.parts = {item.sha256: 100}

    def receive(spec: Mapping[str, Any]) -> dict[str, Any] | None:
        offsets.append(spec["files"][0]["offset"])
        return answer(again={item.sha256: 700}) if len(offsets) == 1 else None

    box.instead["receive"] = receive
    assert fleet.bring(item) == {} and offsets == [100, 700] and fleet.swarm.sent == 900 + 300


def test_what_arrives_damaged_is_sent_again_but_not_for_ever(fleet: Fleet) -> None:
    item = fleet.store.add("a.whl", b"a" * 1000)
    box = fleet.box("one")
    box.instead["receive"] = lambda spec: answer(damaged=[item.sha256])
    assert fleet.bring(item) == {
        "one": "one: a.whl does not come: it arrived damaged. Deploy again; what came is kept."
    }
    assert fleet.swarm.sent == 1000 * (TRIES + 1)


def test_a_file_that_is_damaged_on_the_controller(fleet: Fleet) -> None:
    item = fleet.store.add("a.whl", b"a" * 1000)
    fleet.store.path(item).write_bytes(b"b" * 1000)
    fleet.box("one").instead["receive"] = lambda spec: answer(damaged=[item.sha256])
    (line,) = fleet.bring(item).values()
    assert f"{fleet.store.path(item)} on this controller is damaged" in line and "delete that file" in line.lower()


def test_a_file_that_is_gone_from_the_controller(fleet: Fleet) -> None:
    item = fleet.store.add("a.whl", b"a" * 1000)
    box = fleet.box("one")

    def stock(spec: Mapping[str, Any]) -> None:
        fleet.store.path(item).unlink()

    box.instead["stock"] = stock
    (line,) = fleet.bring(item).values()
    assert "on this controller cannot be read: No such file" in line


def test_a_file_that_nobody_has(fleet: Fleet) -> None:
    fleet.box("one")
    (line,) = fleet.bring(Item("a.whl", "0" * 64, 5)).values()
    assert line.startswith("one: a.whl cannot be had: neither the controller nor a box has it.")


def test_from_outside_once_and_by_a_box_that_can(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "LOOK_SECONDS", 0.0)  # so that `one` is the first
    item = Item("a.whl", "0" * 64, None)
    one, two = fleet.box("one"), fleet.box("two")

    def pull(spec: Mapping[str, Any]) -> dict[str, Any] | None:
        if spec["peer"]:
            return None
        return {"got": [], "failed": {item.sha256: {"cause": "no route", "wrong": False}}, "busy": []}

    for box in (one, two):
        box.call = sizeless(box)  # type: ignore[method-assign]
    one.instead["pull"] = pull
    assert fleet.bring(item, addresses={item.sha256: "http://outside/a.whl"}) == {}
    assert fleet.all_have(item) and fleet.swarm.sent == 0
    assert one.host.said == [
        "1 file to come",
        "a.whl cannot be had from outside: no route",
        "all files are here after a while",
    ]
    two.files.clear()
    one.files.clear()
    two.instead["pull"] = pull
    fleet.swarm = Swarm()
    failed = fleet.bring(item, addresses={item.sha256: "http://outside/a.whl"})
    assert failed["two"] == "two: a.whl cannot be had: no route. See to that, then deploy again." and len(failed) == 2


def sizeless(box: Box) -> Callable[..., dict[str, Any]]:
    """Without progress, which a file of unknown size has none of."""
    original = box.call

    def call(verb: str, spec: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        return original(verb, spec, **{**more, "progress": None})

    return call


def test_a_box_that_fails_holds_up_nobody(fleet: Fleet) -> None:
    items = [fleet.store.add(name, name.encode() * (9 << 20)) for name in ("a", "b", "c")]
    one, two, three = (fleet.box(name) for name in ("one", "two", "three"))

    def receive(spec: Mapping[str, Any]) -> dict[str, Any]:
        raise BoxError("one", "no space", "make room")

    one.instead["receive"] = receive
    assert fleet.bring(*items) == {"one": "one: no space. Make room."}
    assert all(box.files == {item.sha256: GOOD for item in items} for box in (two, three))
    assert fleet.swarm.sent <= 4 * (9 << 20), "what one did not take, and one copy"
