"""An adoption taken back because of another box: the old unit serves again, at whatever moment it is cut off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostkit import rollback, state, undo
from hostkit.errors import Failure
from tests.unit.activation_box import Machine, make
from tests.unit.test_activation_cut_off import GOING_ON, Cutter
from tests.unit.test_replaced import OLD, old
from tests.unit.test_taken import OFF, ON, adopt

SPEC = {"instance": "tiny", "by": "me", "run": "r2"}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # it is processes that are killed here
    found = make(tmp_path, monkeypatch)
    found.owners(OLD, 8000)
    return found


def test_the_old_unit_serves_again_and_starts_at_boot(machine: Machine) -> None:
    adopt(machine, "tiny")
    assert undo.run(SPEC) == {"back": [OLD]}
    assert machine.runs("tiny") is None and old(machine) == ON
    known = state.instance("tiny")
    assert (known["gated"], known["activation"], known["replaced"]) == (None, None, None)
    last = machine.journal()[-1]
    assert (last["event"], last["back"], last["ok"]) == ("put-back", None, True)
    assert (machine.root / "instances/tiny/releases").exists()  # for a look, as of one that failed
    adopt(machine, "tiny")
    assert machine.runs("tiny") and old(machine) == OFF


def test_of_several_the_last_brings_it_back(machine: Machine) -> None:
    adopt(machine, "tiny", "tiny-2")
    assert undo.run({**SPEC, "instance": "tiny-2"}) == {"back": []}
    assert machine.runs("tiny") and old(machine) == OFF
    assert undo.run(SPEC) == {"back": [OLD]} and old(machine) == ON


def test_one_that_does_not_come_up_is_a_failure(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    adopt(machine, "tiny")
    monkeypatch.setattr(machine, "start", lambda unit: machine.put(unit, runs=None))
    with pytest.raises(Failure) as caught:
        undo.run(SPEC)
    assert caught.value.cause == f"tiny was taken off, and {OLD} does not listen on port 8000: it is inactive"
    assert machine.units[OLD]["enabled"] and not state.instance("tiny")["activation"]
    assert machine.journal()[-1]["ok"] is False


def taken_back(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    good = box.stage("a: 1")
    box.activate(good, replaces=[OLD])
    return (lambda: undo.run(SPEC)), {good, None}


@pytest.mark.parametrize("going_on", GOING_ON)
def test_cut_off_at_every_moment_one_of_them_serves(going_on: str, machine: Machine) -> None:
    cutter = Cutter(taken_back, machine)
    ended = set()
    for _ in cutter.each_moment(going_on):
        runs, known = machine.runs("tiny"), state.instance("tiny")
        assert runs in cutter.may and not known["activation"]
        assert old(machine) == (OFF if runs else ON) and bool(known["replaced"]) == bool(runs)
        ended.add(runs)
    assert cutter.count > 20 and ended == cutter.may


def test_a_release_beside_which_it_ran_comes_back_with_it(machine: Machine) -> None:
    good, new = machine.stage("a: 1"), machine.stage("a: 2")
    machine.put(OLD, runs=None)
    machine.activate(good)
    machine.owners(OLD, 9000)
    machine.activate(new, replaces=[OLD])
    assert old(machine) == OFF
    rollback.run({"instance": "tiny", "to": good, "by": "me", "hold": False, "give_back": [OLD]})
    assert machine.runs("tiny") == good and old(machine) == ON and not state.instance("tiny")["replaced"]


def test_a_rollback_by_hand_leaves_it_off(machine: Machine) -> None:
    good, new = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(good, replaces=[OLD])
    machine.activate(new, replaces=[OLD])
    rollback.run({"instance": "tiny", "to": None, "by": "me"})
    assert machine.runs("tiny") == good and old(machine) == OFF and state.instance("tiny")["replaced"]


def test_a_rollback_whose_unit_does_not_come_back_says_so(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.owners(OLD, 9000)
    good, new = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(good)
    machine.activate(new, replaces=[OLD])
    start = machine.start
    monkeypatch.setattr(machine, "start", lambda unit: machine.put(unit, runs=None) if unit == OLD else start(unit))
    with pytest.raises(Failure, match=f"release {good} of tiny serves again, and {OLD} does not listen on port 9000"):
        rollback.run({"instance": "tiny", "to": good, "by": "me", "hold": False, "give_back": [OLD]})
    assert machine.runs("tiny") == good
