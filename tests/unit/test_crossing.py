"""Instances of a box that take each other's cards or ports: switched in an order that works, or refused before."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet import crossing
from gpufleet.changes import changes
from gpufleet.plan import BoxPlan
from gpufleet.rules import check
from tests.unit.findings import Case, cards, engine
from tests.unit.fleets import plan

Has = dict[str, tuple[list[int], int]]


def box(has: Has, wanted: dict[str, int], stopped: tuple[str, ...] = (), held: tuple[str, ...] = ()) -> BoxPlan:
    """A box whose instances have these cards and ports now, and are to have these ports, and cards in that order."""
    known: dict[str, Any] = {}
    ports: dict[str, Any] = {}
    for name, (gpus, port) in has.items():
        active = "inactive" if name in stopped else "active"
        service = {"active": active, "sub": "", "enabled": True, "pid": 7, "restarts": 0, "since": None}
        known[name] = {
            "current": "1" * 16, "releases": ["1" * 16], "drift": [], "gated": "1" * 16, "stale": False, "port": port,
            "gpus": [f"GPU-{card}" for card in gpus], "service": service, "history": [], "activation": None,
            "held": {"since": "x", "by": "anna", "digest": "1" * 16} if name in held else None,
        }  # fmt: skip
        if active == "active":
            ports[str(port)] = {"pid": 7, "command": "vllm", "unit": f"gpufleet-{name}.service"}
    serve = [
        {"model": "tiny", "name": name, "port": port, "tensor_parallel_size": 1, "instances": 1}
        for name, port in wanted.items()
    ]
    by = engine("sm75")
    return plan(cards(3, instances=known, ports=ports), {"stack": by.name, "serve": serve}, stacks=[by])


def cross(found: BoxPlan) -> list[str]:
    return [f"{each.message}. {each.remedy}" for each in check(found) if each.code in ("GF604", "GF614")]


def switched(found: BoxPlan) -> list[str]:
    return [change.instance.name for change in changes(found).instances]


def test_who_gives_up_a_card_or_a_port_is_switched_first() -> None:
    found = box({"a": ([2], 8000), "b": ([0], 8001)}, {"a": 8000, "b": 8001})
    assert [list(instance.gpus) for instance in found.instances] == [[0], [1]]
    assert crossing.taken(found) == {"a": {"b": ["GPU 0"]}}
    assert switched(found) == ["b", "a"] and cross(found) == []
    by_port = box({"a": ([0], 8000), "b": ([1], 8001)}, {"a": 8001, "b": 8002})
    assert crossing.taken(by_port) == {"a": {"b": ["port 8001"]}}
    assert switched(by_port) == ["b", "a"] and cross(by_port) == []


def test_who_leaves_is_in_nobodys_way() -> None:
    found = box({"a": ([2], 8000), "gone": ([0], 8001)}, {"a": 8001})
    assert crossing.taken(found) == {} and cross(found) == []


SWAPPED: Has = {"a": ([1], 8001), "b": ([0], 8000)}


def test_two_that_change_places_are_refused_and_named_with_what_to_do() -> None:
    found = box(SWAPPED, {"a": 8000, "b": 8001})
    assert cross(found) == [
        "a is to have GPU 0, port 8000 of b, and b is to have GPU 1, port 8001 of a: none of them can be switched "
        "first. on the box `systemctl stop gpufleet-b.service`, then deploy again: a is switched first then, and b is "
        "down until its own turn"
    ]


def test_once_one_of_them_is_stopped_the_other_goes_first() -> None:
    found = box(SWAPPED, {"a": 8000, "b": 8001}, stopped=("b",))
    assert cross(found) == [] and switched(found) == ["a", "b"]
    other = box(SWAPPED, {"a": 8000, "b": 8001}, stopped=("a",))
    assert cross(other) == [] and switched(other) == ["b", "a"]


def test_a_circle_of_three_is_one_finding_and_one_stop_opens_it() -> None:
    has: Has = {"a": ([1], 8000), "b": ([2], 8001), "c": ([0], 8002)}
    wanted = {"a": 8000, "b": 8001, "c": 8002}
    (line,) = cross(box(has, wanted))
    assert "systemctl stop gpufleet-c.service" in line
    opened = box(has, wanted, stopped=("c",))
    assert cross(opened) == [] and switched(opened) == ["a", "b", "c"]


def test_what_is_held_gives_nothing_up() -> None:
    found = box({"a": ([2], 8000), "b": ([0], 8001)}, {"a": 8000, "b": 8001}, held=("b",))
    assert cross(found) == [
        "a is to have GPU 0, which b has, and b is held. `gpufleet unhold INVENTORY box-1/b`, or give a something else"
    ]


@pytest.mark.parametrize(
    ("taken", "order"),
    [
        ({}, ["a", "b", "c"]),
        ({"a": {"c": ["GPU 0"]}, "c": {"b": ["GPU 1"]}}, ["b", "c", "a"]),
        ({"a": {"b": ["GPU 0"]}, "b": {"a": ["GPU 1"]}}, ["c", "a", "b"]),
        ({"a": {"z": ["GPU 0"]}}, ["a", "b", "c"]),
    ],
    ids=["as given", "a chain", "a circle last", "one that is not switched"],
)
def test_order(taken: crossing.Taken, order: list[str]) -> None:
    assert crossing.in_order(["a", "b", "c"], taken) == order


CASES = [Case("GF614", "error", "systemctl stop gpufleet-b.service", box(SWAPPED, {"a": 8000, "b": 8001}))]
