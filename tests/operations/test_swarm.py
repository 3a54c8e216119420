"""The swarm among boxes that are made up: what boxes answer, and what is done then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gevent
import pytest

import gpufleet.spread
from gpufleet.errors import BoxError
from operations import swarm as operation
from operations.member import TRIES, Damaged, Ways
from operations.swarm import Swarm
from tests.operations.swarm_boxes import BAD, GOOD, Box, Fleet, Item, answer


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(operation, "BUSY_SECONDS", 0.001)
    monkeypatch.setattr(gpufleet.spread, "TINY", 0)  # the files of these tests stand for large ones
    return Fleet(tmp_path)


def test_one_copy_from_the_controller_and_the_servers_end(fleet: Fleet) -> None:
    item = fleet.store.add("a.whl", b"a" * 1000)
    boxes = [fleet.box(name) for name in ("one", "two", "three")]
    assert fleet.bring(item) == {}
    assert fleet.all_have(item) and fleet.swarm.sent == 1000
    shared = [box for box in boxes if "share" in box.asked]
    assert shared and all(box.asked[-1] == "unshare" for box in shared)
    assert fleet.bring(item) == {} and fleet.swarm.sent == 1000


def test_tiny_files_are_sent_to_each_box_and_shared_by_none(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpufleet.spread, "TINY", 1000)
    item = fleet.store.add("config.json", b"a" * 1000)
    boxes = [fleet.box(name) for name in ("one", "two", "three")]
    assert fleet.bring(item) == {} and fleet.all_have(item)
    assert fleet.swarm.sent == 3000 and not any("share" in box.asked for box in boxes)


def test_what_is_hardly_anything_is_told_only_where_nothing_else_came(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpufleet.spread, "TINY", 1000)
    box, tiny, large = fleet.box("one"), fleet.store.add("a.json", b"a" * 9), fleet.store.add("a.whl", b"b" * (1 << 20))
    for items, words in (((tiny,), "0.0 MiB from the controller"), ((tiny, large), "1.0 MiB from other boxes")):
        fleet.swarm = Swarm()
        fleet.box("other", *items[1:])
        box.files.clear()
        assert fleet.bring(*items) == {}
        assert box.host.said[-1].endswith(f": {words}")


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
        return {"have": [items[0].sha256], "parts": {}, "holes": {}}

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
    assert "on this controller is gone. Deploy again" in line


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


# Files of models: only what lacks of them leaves the controller


def test_only_the_holes_of_a_file_are_sent(fleet: Fleet) -> None:
    item = fleet.store.add("a.safetensors", bytes(range(200)))
    box = fleet.box("one")
    box.holes = {item.sha256: [[10, 5], [100, 20]]}
    sent: list[bytes] = []
    box.call = taking(box, sent)  # type: ignore[method-assign]
    more = {item.sha256: {"place": "models", "pieces": ["p"], "at": ["m/r1/a.safetensors"]}}
    assert fleet.bring(item, **more) == {}
    assert sent == [bytes(range(10, 15)) + bytes(range(100, 120))] and fleet.swarm.sent == 25
    (_, looked), (_, received) = box.specs
    known = {"filename": "a.safetensors", "sha256": item.sha256, "size": 200, **more[item.sha256]}
    assert looked == {"files": [known], "check": True, "spare": 7}
    assert received == {"files": [{**known, "offset": 0, "holes": [[10, 5], [100, 20]]}]}
    assert box.host.said[0] == "1 file to come, 0.0 MiB"


def taking(box: Box, sent: list[bytes]) -> Callable[..., dict[str, Any]]:
    """The box's `call`, which notes the bytes that come."""
    real = box.call

    def call(verb: str, spec: Mapping[str, Any], payload: Any = (), **more: Any) -> dict[str, Any]:
        data = b"".join(payload)
        if verb == "receive":
            sent.append(data)
        return real(verb, spec, payload=[data], **more)

    return call


def test_what_comes_damaged_is_sent_again_in_part(fleet: Fleet) -> None:
    item = fleet.store.add("a.safetensors", bytes(1000))
    box, tries = fleet.box("one"), []

    def receive(spec: Mapping[str, Any]) -> dict[str, Any] | None:
        tries.append(spec["files"][0].get("holes"))
        found = answer(damaged=[item.sha256], holes={item.sha256: [[0, 100]]})
        return found if len(tries) == 1 else None

    box.instead["receive"] = receive
    assert fleet.bring(item) == {} and tries == [None, [[0, 100]]]
    assert fleet.swarm.sent == 1100


def test_holes_that_another_deploy_made_meanwhile(fleet: Fleet) -> None:
    item = fleet.store.add("a.safetensors", bytes(1000))
    box, tries = fleet.box("one"), []

    def receive(spec: Mapping[str, Any]) -> dict[str, Any] | None:
        tries.append(spec["files"][0].get("holes"))
        found = answer(again={item.sha256: 1000}, holes={item.sha256: [[500, 100]]})
        return found if len(tries) == 1 else None

    box.instead["receive"] = receive
    assert fleet.bring(item) == {} and tries == [None, [[500, 100]]]


def test_a_damaged_file_of_the_controller_is_named_for_who_can_mend_it(fleet: Fleet) -> None:
    item = fleet.store.add("a.safetensors", b"a" * 1000)
    fleet.store.path(item).write_bytes(b"b" * 1000)
    box = fleet.box("one")
    box.instead["receive"] = lambda spec: answer(damaged=[item.sha256])
    with pytest.raises(Damaged, match=r"a\.safetensors on this controller is damaged") as raised:
        fleet.swarm.bring(box, [item], fleet.store, Ways())  # type: ignore[arg-type, list-item]
    assert raised.value.sha256 == item.sha256


def test_reading_what_is_here_is_said_once(fleet: Fleet) -> None:
    item = fleet.store.add("a.safetensors", b"a")
    box = fleet.box("one", item)
    real = box.call

    def call(verb: str, spec: Mapping[str, Any], progress: Any = None, **more: Any) -> dict[str, Any]:
        for _ in range(3):
            progress({"read": 1, "of": 2})
        return real(verb, spec, **more)

    box.call = call  # type: ignore[method-assign]
    assert fleet.bring(item) == {} and box.host.said == ["reading what is here of large files"]


def test_a_box_that_lacks_nothing_gives_to_one_that_comes(fleet: Fleet) -> None:
    items = [fleet.store.add(name, name.encode() * 1000) for name in ("a", "b")]
    old, new = fleet.box("old", *items), fleet.box("new")
    for _ in range(2):
        fleet.swarm.offer(old, items, {})
    assert fleet.bring(*items, to=[new]) == {}
    assert new.files == old.files and fleet.swarm.sent == 0
    assert old.asked == ["stock", "share", "unshare"]


def test_what_is_offered_while_the_box_comes_itself_changes_nothing(fleet: Fleet) -> None:
    item = fleet.store.add("a", b"a" * 1000)
    box = fleet.box("one")
    box.instead["receive"] = lambda spec: fleet.swarm.offer(box, [item], {})  # type: ignore[func-returns-value]
    assert fleet.bring(item) == {} and fleet.all_have(item)
    assert box.asked.count("stock") == 1
