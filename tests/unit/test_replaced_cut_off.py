"""An instance that takes the place of an owner's unit, cut off at every moment: one of them serves in the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from hostkit import resume, state
from hostkit.errors import Failure
from tests.unit.activation_box import Machine
from tests.unit.test_activation_cut_off import GOING_ON, Cutter
from tests.unit.test_replaced import OLD, machine, old

__all__ = ["machine"]  # the fixture
Scenario = Callable[[Machine], "tuple[Callable[[], Any], set[str | None]]"]


def takes_over(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    new = box.stage("a: 1")
    return (lambda: box.activate(new, replaces=[OLD])), {new, None}


def takes_over_badly(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    bad = box.stage("a: 1")
    box.gate_fails.add(bad)
    return (lambda: box.activate(bad, replaces=[OLD])), {None}


def beside_a_release(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    """It serves on another port, and a new release takes the unit's place."""
    good, new = box.stage("a: 1"), box.stage("a: 2")
    box.put(OLD, runs=None)
    box.activate(good)
    box.owners(OLD, 9000)
    return (lambda: box.activate(new, replaces=[OLD])), {good, new}


def check(box: Machine, may: set[str | None], new: str | None) -> None:
    """One of them serves; the unit is off for good if the instance has its place, and else as it was."""
    runs, known = box.runs("tiny"), state.instance("tiny")
    assert not known.get("activation") and runs in may
    taken = runs is not None and (len(may) == 1 or runs == new)
    assert old(box) == ((False, False) if taken else (True, True)), (runs, box.units)
    assert bool(known.get("replaced")) == taken
    assert [line["units"] for line in box.journal() if line["event"] == "replaced"] == ([[OLD]] if taken else [])


SCENARIOS: list[Scenario] = [takes_over, takes_over_badly, beside_a_release]
LONG = pytest.mark.large  # minutes of the default run, in which the others are cut off


def scenarios(*long: Scenario) -> Any:
    marked = [pytest.param(each, marks=LONG if each in long else ()) for each in SCENARIOS]
    return pytest.mark.parametrize("scenario", marked, ids=lambda scenario: scenario.__name__)


@pytest.mark.parametrize("going_on", GOING_ON)
@scenarios(beside_a_release)
def test_cut_off_at_every_moment(scenario: Scenario, going_on: str, machine: Machine) -> None:
    cutter = Cutter(scenario, machine)
    new = machine.journal()[-1]["digest"] if scenario is not takes_over_badly else None
    ended = set()
    for _ in cutter.each_moment(going_on):
        check(machine, cutter.may, new)
        ended.add(machine.runs("tiny"))
    assert cutter.count > 20 and ended == cutter.may


@scenarios(beside_a_release, takes_over_badly)
def test_going_on_is_cut_off_too(scenario: Scenario, machine: Machine) -> None:
    cutter = Cutter(scenario, machine)
    new = machine.journal()[-1]["digest"] if scenario is not takes_over_badly else None
    for moment in range(3, cutter.count, 8):
        second = 0
        while True:
            cutter.again()
            assert machine.stopped_at(moment, cutter.action)
            machine.power_cut()
            if not machine.stopped_at(second, lambda: resume.run({})):
                break
            machine.power_cut()
            resume.run({})
            check(machine, cutter.may, new)
            second += 6
        check(machine, cutter.may, new)


def test_the_next_deploy_goes_on_with_what_the_unit_was(machine: Machine) -> None:
    """Without a boot in between: what the first one stopped is not taken for what was off before."""
    cutter = Cutter(takes_over_badly, machine)
    for moment in range(0, cutter.count, 2):
        cutter.again()
        assert machine.stopped_at(moment, cutter.action)
        with contextlib.suppress(Failure):
            cutter.action()
        check(machine, cutter.may, None)
