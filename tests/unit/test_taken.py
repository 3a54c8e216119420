"""Instances that have the place of one unit together: it comes back with the last of them, not beside the others."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from hostkit import removable, replaced, retire, state, taken
from hostkit.errors import Failure
from tests.unit.activation_box import Machine, make
from tests.unit.removal_box import OWNERS, RemovalBox
from tests.unit.test_replaced import OLD, old

NAMES = ["tiny", "tiny-2", "tiny-3"]
OFF, ON = (False, False), (True, True)
WAS = {"enabled": True, "active": True, "ports": [8000], "path": None}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = make(tmp_path, monkeypatch)
    found.owners(OLD, 8000)
    return found


def adopt(machine: Machine, *names: str) -> None:
    for name in names:
        machine.activate(machine.stage("a: 1", name), name, replaces=[OLD])


def goes(name: str) -> list[str]:
    """As `gpufleet remove BOX/NAME` has it."""
    retire.leave(name)
    started = replaced.give_back(name)["started"]
    state.drop(name)
    return list(started)


@pytest.mark.parametrize("order", [NAMES, NAMES[::-1], ["tiny-2", "tiny", "tiny-3"]], ids=" ".join)
def test_it_comes_back_with_the_last_that_goes(machine: Machine, order: list[str]) -> None:
    adopt(machine, *NAMES)
    assert [state.instance(name)["replaced"] for name in NAMES] == [{OLD: WAS}] * 3
    for name in order[:-1]:
        assert goes(name) == [] and old(machine) == OFF
    assert goes(order[-1]) == [OLD] and old(machine) == ON


def test_one_that_was_started_by_hand_is_so_again(machine: Machine) -> None:
    machine.owners(OLD, 8000, enabled=False)
    adopt(machine, "tiny", "tiny-2")
    assert goes("tiny") == [] and goes("tiny-2") == [OLD]
    assert old(machine) == (True, False)


def test_where_all_go_it_comes_back_once(machine: Machine) -> None:
    adopt(machine, *NAMES)
    for name in NAMES:
        retire.leave(name)
    assert [replaced.give_back(name)["started"] for name in NAMES] == [[OLD], [], []]
    assert old(machine) == ON


def test_a_second_that_fails_leaves_it_to_the_first(machine: Machine) -> None:
    adopt(machine, "tiny")
    bad = machine.stage("a: 1", "tiny-2")
    machine.gate_fails.add(bad)
    with pytest.raises(Failure):
        machine.activate(bad, "tiny-2", replaces=[OLD])
    assert machine.runs("tiny") and old(machine) == OFF
    assert not state.instance("tiny-2").get("replaced")
    assert goes("tiny") == [OLD]


def test_one_that_was_retired_does_not_keep_it_off(machine: Machine) -> None:
    adopt(machine, "tiny", "tiny-2")
    retire.run({"instances": ["tiny"]})
    assert goes("tiny-2") == [OLD] and old(machine) == ON
    machine.put(OLD, runs=None, enabled=False)  # its owner wants it no more
    assert goes("tiny") == [] and old(machine) == OFF


def test_one_that_was_retired_is_removed_beside_its_successor(machine: Machine) -> None:
    """It found the unit off, and has its place all the same."""
    adopt(machine, "tiny")
    retire.run({"instances": ["tiny"]})
    adopt(machine, "other")
    assert goes("tiny") == [] and old(machine) == OFF
    assert goes("other") == [OLD] and old(machine) == ON


def test_retiring_one_names_it_only_when_no_other_serves(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    adopt(machine, "tiny", "tiny-2")
    capsys.readouterr()
    retire.run({"instances": ["tiny-2"]})
    assert "stays off" not in capsys.readouterr().out
    retire.run({"instances": ["tiny"]})
    assert f"systemctl enable --now {OLD}" in capsys.readouterr().out


def test_what_only_the_one_that_goes_knows_is_left_to_the_others(machine: Machine) -> None:
    """The second was there before what the first is told to take the place of."""
    machine.owners(OLD, 8000, enabled=False, runs=None)
    adopt(machine, "tiny", "tiny-2")
    machine.owners(OLD, 8000)
    adopt(machine, "tiny-2")
    machine.owners(OLD, 8000)
    adopt(machine, "tiny")
    state.update("tiny-2", replaced={OLD: {**WAS, "active": False}})
    assert goes("tiny") == []
    assert state.instance("tiny-2")["replaced"][OLD]["active"]
    assert goes("tiny-2") == [OLD]


def test_a_state_of_an_older_version_has_it_with_the_first_alone(machine: Machine) -> None:
    """Until the others are activated again."""
    adopt(machine, "tiny", "tiny-2")
    state.update("tiny-2", replaced=None)
    assert taken.still_by(OLD, "tiny") == []
    adopt(machine, "tiny-2")
    assert taken.still_by(OLD, "tiny") == ["tiny-2"]


def test_going_is_cut_off_and_done_again(machine: Machine) -> None:
    adopt(machine, "tiny", "tiny-2")
    for name, after in (("tiny", OFF), ("tiny-2", ON)):
        moment = 0
        while machine.stopped_at(moment, lambda name=name: goes(name)):  # type: ignore[misc]
            moment += 1
        assert moment > 4 and old(machine) == after


def test_a_cut_off_activation_of_another_keeps_it_off(machine: Machine) -> None:
    """It stopped the unit, and gpufleet-resume or the next deploy ends it as one or the other."""
    machine.put(OLD, runs=None, enabled=False)
    machine.activate(machine.stage("a: 1"))
    machine.owners(OLD, 8000)
    second = machine.stage("a: 1", "tiny-2")
    moment = 0
    while old(machine)[0]:
        assert machine.stopped_at(moment, lambda: machine.activate(second, "tiny-2", replaces=[OLD]))
        moment += 1
    state.update("tiny", replaced={OLD: WAS})
    assert goes("tiny") == [] and old(machine) == (False, True)
    with contextlib.suppress(Failure):
        machine.activate(second, "tiny-2", replaces=[OLD])
    assert goes("tiny-2") == [OLD]


def test_what_is_shown_before_one_of_several_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = RemovalBox(tmp_path, monkeypatch)
    box.deploy()
    has = {OWNERS: {"enabled": True, "active": True}}
    state.update("tiny-2", gated="0123456789abcdef", port=8001, replaced=has)
    found = removable.run({"instance": "tiny"})
    assert found["back"] == []
    assert [(each["name"], each["why"]) for each in found["stays"]] == [(OWNERS, "off: tiny-2 has its place, too")]
    assert removable.run({"instance": None})["back"] == [OWNERS]
    state.drop("tiny-2")
    assert removable.run({"instance": "tiny"})["back"] == [OWNERS]
