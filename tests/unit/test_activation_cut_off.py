"""An activation that is cut off at any moment ends on a release that passed its gate, and the journal is whole.

Each scenario is run once for every moment: before and after each write of the state, after each of the journal, before
and after each call of systemctl, and while the gate asks. The process is gone there, as by SIGKILL; then the box goes
on by `resume`, with its units still as they were, or after a boot that has started what is enabled.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostkit import restart, resume, resume_unit, rollback, state
from hostkit.books import PASSED
from hostkit.errors import Failure
from tests.unit.activation_box import Machine, make

Scenario = Callable[[Machine], "tuple[Callable[[], Any], set[str | None]]"]
ENDS = (*PASSED.values(), "put-back", "left")


def upgrade(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    old, new = box.stage("a: 1"), box.stage("a: 2")
    box.activate(old)
    return (lambda: box.activate(new)), {old, new}


def bad_upgrade(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    old, bad = box.stage("a: 1"), box.stage("a: 2")
    box.activate(old)
    box.gate_fails.add(bad)
    return (lambda: box.activate(bad)), {old}


def first(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    new = box.stage("a: 1")
    return (lambda: box.activate(new)), {new, None}


def bad_first(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    bad = box.stage("a: 1")
    box.gate_fails.add(bad)
    return (lambda: box.activate(bad)), {None}


def same_again(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    """The release it has, on a runtime that was installed anew."""
    old = box.stage("a: 1")
    box.activate(old)
    state.update("tiny", stale=True)
    return (lambda: box.activate(old)), {old}


def roll_back(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    old, new = box.stage("a: 1"), box.stage("a: 2")
    box.activate(old)
    box.activate(new)
    return (lambda: rollback.run({"instance": "tiny", "to": None, "by": "me"})), {old, new}


def started_again(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    old = box.stage("a: 1")
    box.activate(old)
    return (lambda: restart.run({"instance": "tiny"})), {old}


def successor(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    """An instance that takes the place of another one."""
    box.activate(box.stage("b: 1", "old"), "old")
    new = box.stage("a: 1")
    return (lambda: box.activate(new, leaving=["old"])), {new, None}


SCENARIOS = [upgrade, bad_upgrade, first, bad_first, same_again, roll_back, started_again, successor]
GOING_ON = {
    "killed": lambda box: None,
    "powered off": lambda box: box.power_cut(),
}


def check(box: Machine, may: set[str | None], begun: bool) -> None:
    known, runs = state.instance("tiny"), box.runs("tiny")
    assert not known.get("activation")
    assert runs in may and box.current("tiny") == runs == known.get("gated")
    assert not known.get("stale") or not begun  # before its first write it has changed nothing
    journal = [line for line in box.journal() if line["instance"] == "tiny"]  # parsed: no line is torn
    ends = [line for line in journal if line["event"] in ENDS]
    # Each activation that was begun has one end.
    assert [line["began"] for line in ends] == sorted(
        {line["began"] for line in journal if line["event"] == "activation"}
    )
    if ends and ends[-1]["event"] in PASSED.values():
        assert ends[-1]["digest"] == runs
    held = known.get("held")
    assert (held or {}).get("digest") in (None, runs)
    assert len([line for line in journal if line["event"] == "held"]) == bool(held)
    units = {path.name for path in (box.root / "units").iterdir()} - {resume_unit.NAME}
    assert ("gpufleet-tiny.service" in units) == (runs is not None)


class Cutter:
    """A scenario's box as it is before its last action, made anew for each moment."""

    def __init__(self, scenario: Scenario, box: Machine) -> None:
        self.box, self.start = box, box.root.parent / "start"
        self.action, self.may = scenario(box)
        shutil.copytree(box.root, self.start, symlinks=True)
        before = box.moments
        with contextlib.suppress(Failure):
            self.action()
        self.count = box.moments - before

    def again(self) -> None:
        shutil.rmtree(self.box.root)
        shutil.copytree(self.start, self.box.root, symlinks=True)

    def each_moment(self, going_on: str) -> Iterator[list[str]]:
        """The action is cut off at one moment after another, and gone on with: the instances of which that was so."""
        for moment in range(self.count):
            self.again()
            assert self.box.stopped_at(moment, self.action)
            GOING_ON[going_on](self.box)
            yield list(resume.run({})["resumed"])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return make(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # it is processes that are killed here


@pytest.mark.parametrize("going_on", GOING_ON)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_cut_off_at_every_moment(scenario: Scenario, going_on: str, machine: Machine) -> None:
    cutter = Cutter(scenario, machine)
    ended = set()
    for resumed in cutter.each_moment(going_on):
        check(machine, cutter.may, bool(resumed))
        ended.add(machine.runs("tiny"))
        if scenario is successor:
            assert (machine.runs("old") is None) == (machine.runs("tiny") is not None)
    assert cutter.count > 10 and ended == cutter.may


@pytest.mark.parametrize("scenario", [upgrade, bad_upgrade, successor], ids=lambda scenario: scenario.__name__)
def test_going_on_is_cut_off_too(scenario: Scenario, machine: Machine) -> None:
    cutter = Cutter(scenario, machine)
    ended = set()
    for moment in range(3, cutter.count, 7):
        second = 0
        while True:
            cutter.again()
            assert machine.stopped_at(moment, cutter.action)
            machine.power_cut()
            if not machine.stopped_at(second, lambda: resume.run({})):
                break
            machine.power_cut()
            resume.run({})
            check(machine, cutter.may, True)
            ended.add(machine.runs("tiny"))
            second += 5
        check(machine, cutter.may, True)
    assert ended == cutter.may


def test_the_next_deploy_goes_on_as_well(machine: Machine) -> None:
    """Without a boot in between, with the release that was begun and with another one."""
    cutter = Cutter(upgrade, machine)
    for other in (False, True):
        for moment in range(0, cutter.count, 3):
            cutter.again()
            assert machine.stopped_at(moment, cutter.action)
            third = machine.stage("a: 3")
            machine.activate(third) if other else cutter.action()
            known = state.instance("tiny")
            assert machine.runs("tiny") == machine.current("tiny") == known["gated"]
            assert not known["activation"] and not known["stale"]
            assert (machine.runs("tiny") == third) == other
