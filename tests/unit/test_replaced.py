"""An owner's unit whose place an instance takes: off when the instance serves, and back as it was when it does not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hostkit import replaced, restart, resume, retire, state, systemd, vram_check
from hostkit.errors import Failure
from tests.unit.activation_box import Machine, make

OLD = "vllm.service"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # it is processes that are killed here
    found = make(tmp_path, monkeypatch)
    found.owners(OLD, 8000)
    return found


def old(box: Machine) -> tuple[bool, bool]:
    """(runs, enabled)"""
    known = box.units[OLD]
    return bool(known["runs"]), known["enabled"]


def test_it_is_stopped_and_disabled_and_what_it_was_is_kept(machine: Machine) -> None:
    machine.ports = {"34379": {"pid": 6, "command": "VLLM::EngineCore", "unit": OLD}}  # another one at its next start
    answer = machine.activate(machine.stage("a: 1"), replaces=[OLD])
    assert machine.runs("tiny") and old(machine) == (False, False)
    kept = state.instance("tiny")["replaced"][OLD]
    assert (kept["enabled"], kept["active"], kept["ports"]) == (True, True, [8000])
    assert answer["down_seconds"] is not None  # it served until then
    (line,) = [line for line in machine.journal() if line["event"] == "replaced"]
    assert line["units"] == [OLD]


def test_it_serves_again_when_the_gate_fails(machine: Machine) -> None:
    bad = machine.stage("a: 1")
    machine.gate_fails.add(bad)
    with pytest.raises(Failure, match="the answer is wrong") as caught:
        machine.activate(bad, replaces=[OLD])
    assert caught.value.remedy.endswith(f"; the instance is stopped; {OLD} runs again")
    assert machine.runs("tiny") is None and old(machine) == (True, True)
    known = state.instance("tiny")
    assert (known.get("replaced"), known["gated"], known["activation"]) == (None, None, None)


def test_it_was_started_by_hand_and_is_so_again(machine: Machine) -> None:
    machine.owners(OLD, 8000, enabled=False)
    bad = machine.stage("a: 1")
    machine.gate_fails.add(bad)
    with pytest.raises(Failure):
        machine.activate(bad, replaces=[OLD])
    assert old(machine) == (True, False)


def test_one_that_did_not_run_is_not_started(machine: Machine) -> None:
    machine.owners(OLD, 8000, runs=None)
    bad, good = machine.stage("a: 1"), machine.stage("a: 2")
    machine.gate_fails.add(bad)
    with pytest.raises(Failure):
        machine.activate(bad, replaces=[OLD])
    assert old(machine) == (False, True)
    assert machine.activate(good, replaces=[OLD])["down_seconds"] is None
    assert old(machine) == (False, False)


def test_its_port_and_its_memory_count_as_free(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(vram_check, "check", lambda wanted, units, running: asked.append(units))
    new = machine.stage("a: 1")
    with pytest.raises(Failure, match=f"port 8000 is taken by {OLD}"):
        machine.activate(new)
    machine.activate(new, replaces=[OLD])
    assert asked == [["gpufleet-tiny.service", OLD]]


def test_a_unit_that_systemd_does_not_run_excuses_nothing(machine: Machine) -> None:
    """A unit of a user's own manager has the same name in its control group."""
    machine.put(OLD, runs=None, enabled=False)
    machine.ports = {"8000": {"pid": 5, "command": "vllm", "unit": OLD}}
    with pytest.raises(Failure, match=f"port 8000 is taken by {OLD}"):
        machine.activate(machine.stage("a: 1"), replaces=[OLD])


def test_one_that_is_named_by_another_name_of_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemctl enables and disables a unit by its own name only."""
    shown = machine._shown
    monkeypatch.setattr(machine, "_shown", lambda unit: shown(OLD if unit == "llm.service" else unit))
    machine.activate(machine.stage("a: 1"), replaces=["llm.service"])
    assert old(machine) == (False, False) and set(state.instance("tiny")["replaced"]) == {OLD}
    assert "llm.service" not in machine.units


def test_a_restart_goes_on_with_what_a_cut_off_activation_stopped(machine: Machine) -> None:
    good, new = machine.stage("a: 1"), machine.stage("a: 2")
    machine.put(OLD, runs=None)
    machine.activate(good)
    machine.owners(OLD, 9000)
    moment = 0
    while machine.stopped_at(moment, lambda: machine.activate(new, replaces=[OLD])) and old(machine)[0]:
        moment += 1
    machine.power_cut()
    restart.run({"instance": "tiny"})
    assert machine.runs("tiny") == good and old(machine) == (False, False)
    assert set(state.instance("tiny")["replaced"]) == {OLD}


def test_one_that_is_not_there_is_no_failure(machine: Machine) -> None:
    machine.activate(machine.stage("a: 1"), replaces=["gone.service", OLD])
    assert set(state.instance("tiny")["replaced"]) == {OLD}


def test_what_is_said_when_it_does_not_answer_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = machine.stage("a: 1")
    machine.gate_fails.add(bad)
    monkeypatch.setattr(machine, "start", lambda unit: machine.put(unit, runs=None))
    with pytest.raises(Failure) as caught:
        machine.activate(bad, replaces=[OLD])
    assert f"{OLD} was started again, but {OLD} does not listen on port 8000: it is inactive" in caught.value.remedy
    assert not state.instance("tiny")["activation"]


def test_the_release_before_comes_back_and_the_unit_that_ran_beside_it(machine: Machine) -> None:
    """The instance served on another port, and was to take the unit's place with a new release."""
    good, bad = machine.stage("a: 1"), machine.stage("a: 2")
    machine.put(OLD, runs=None)
    machine.activate(good)
    machine.owners(OLD, 9000)
    machine.gate_fails.add(bad)
    with pytest.raises(Failure, match="the answer is wrong"):
        machine.activate(bad, replaces=[OLD])
    assert machine.runs("tiny") == good and old(machine) == (True, True)


def test_one_that_came_back_and_took_the_port_is_what_served(machine: Machine) -> None:
    """After a boot it was first; the instance, which is active as long as it loads, never served."""
    good = machine.stage("a: 1")
    machine.activate(good, replaces=[OLD])
    machine.owners(OLD, 8000)
    machine.gate_fails.add(good)
    state.update("tiny", stale=True)
    with pytest.raises(Failure) as caught:
        machine.activate(good, replaces=[OLD])
    assert f"the instance is stopped; {OLD} runs again" in caught.value.remedy
    assert machine.runs("tiny") is None and old(machine) == (True, True)


def test_one_that_runs_again_beside_an_instance_is_stopped_without_a_restart(machine: Machine) -> None:
    good = machine.stage("a: 1")
    machine.activate(good, replaces=[OLD])
    machine.owners(OLD, 9000)
    assert machine.activate(good, replaces=[OLD])["restarted"] is False
    assert old(machine) == (False, False)
    machine.owners(OLD, 9000)
    machine.gate_fails.add(good)
    with pytest.raises(Failure):
        machine.activate(good, replaces=[OLD])
    assert machine.runs("tiny") == good and old(machine) == (True, True)


def test_a_restart_leaves_it_alone(machine: Machine) -> None:
    machine.activate(machine.stage("a: 1"), replaces=[OLD])
    machine.owners(OLD, 9000)
    restart.run({"instance": "tiny"})
    assert old(machine) == (True, True)


def test_retiring_does_not_bring_it_back_and_says_how(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.activate(machine.stage("a: 1"), replaces=[OLD])
    retire.run({"instances": ["tiny"]})
    assert old(machine) == (False, False)
    assert f"systemctl enable --now {OLD}" in capsys.readouterr().out
    assert replaced.give_back("tiny")["started"] == [OLD] and old(machine) == (True, True)
    assert replaced.give_back("tiny") == {"started": [], "failed": []}


def test_it_is_given_back_as_it_was_before_the_first_time(machine: Machine) -> None:
    machine.owners(OLD, 8000, enabled=False)
    machine.activate(machine.stage("a: 1"), replaces=[OLD])
    machine.activate(machine.stage("a: 2"), replaces=[OLD])
    retire.run({"instances": ["tiny"]})
    assert replaced.give_back("tiny")["started"] == [OLD] and old(machine) == (True, False)


def test_giving_back_is_cut_off_and_done_again(machine: Machine) -> None:
    machine.activate(machine.stage("a: 1"), replaces=[OLD])
    retire.run({"instances": ["tiny"]})
    moment = 0
    while machine.stopped_at(moment, lambda: replaced.give_back("tiny")):
        moment += 1
    assert moment > 4 and old(machine) == (True, True) and not state.instance("tiny")["replaced"]


def test_what_a_cut_off_activation_stopped_is_given_back_too(machine: Machine) -> None:
    new = machine.stage("a: 1")
    moment = 0
    while machine.stopped_at(moment, lambda: machine.activate(new, replaces=[OLD])) and old(machine)[0]:
        moment += 1
    assert moment > 10 and old(machine) == (False, True)
    retire.leave("tiny")
    assert replaced.give_back("tiny")["started"] == [OLD] and old(machine) == (True, True)


def test_one_that_is_gone_is_told_and_keeps_no_other_from_coming_back(machine: Machine) -> None:
    machine.owners("second.service", 9000)
    machine.activate(machine.stage("a: 1"), replaces=[OLD, "second.service"])
    retire.run({"instances": ["tiny"]})
    units = machine.units
    del units[OLD]
    (machine.root / "systemd.json").write_text(json.dumps(units))
    answer = replaced.give_back("tiny")
    assert answer["started"] == ["second.service"] and machine.units["second.service"]["enabled"]
    assert answer["failed"] == [f"{OLD} is not there any more. make it anew where it is wanted"]
    assert not state.instance("tiny")["replaced"]


def test_one_that_does_not_come_up_is_not_said_to_run(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.activate(machine.stage("a: 1"), replaces=[OLD])
    retire.run({"instances": ["tiny"]})
    monkeypatch.setattr(machine, "start", lambda unit: machine.put(unit, runs=None))
    answer = replaced.give_back("tiny")
    assert answer["started"] == [] and machine.units[OLD]["enabled"]
    (line,) = answer["failed"]
    assert line.startswith(f"{OLD} does not listen on port 8000: it is inactive.")


def test_a_start_that_waits_for_another_one_is_no_end(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd starts it after what it is ordered behind; until then it is inactive, with a job."""
    machine.activate(machine.stage("a: 1"), replaces=[OLD])
    retire.run({"instances": ["tiny"]})
    shown, asked = machine._shown, iter(range(1000))

    def waits(unit: str) -> str:
        if next(asked) < 8:
            return shown(unit) + "Job=7\n"
        machine.put(OLD, runs="as ever")
        return shown(unit)

    monkeypatch.setattr(replaced, "LOOK_SECONDS", 0)
    monkeypatch.setattr(machine, "start", lambda unit: None)
    monkeypatch.setattr(machine, "_shown", waits)
    assert replaced.give_back("tiny") == {"started": [OLD], "failed": []}


def test_one_that_the_boot_is_about_to_start_is_stopped(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is inactive until its turn comes, and would take the port then."""
    machine.owners(OLD, 8000, runs=None)
    shown, asked = machine._shown, machine._systemctl
    told: list[tuple[str, ...]] = []

    def heard(*arguments: str, allowed: bool = False) -> str:
        told.append(arguments)
        return asked(*arguments, allowed=allowed)

    def queued(unit: str) -> str:
        waits = unit == OLD and ("stop", OLD) not in told
        return shown(unit) + "Job=7\n" * waits

    monkeypatch.setattr(machine, "_shown", queued)
    monkeypatch.setattr(systemd, "systemctl", heard)
    machine.activate(machine.stage("a: 1"), replaces=[OLD])
    assert ("stop", OLD) in told and state.instance("tiny")["replaced"][OLD]["active"]


def test_one_that_cannot_be_disabled_is_not_said_to_be(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(systemd, "disable", lambda unit: None)
    machine.activate(machine.stage("a: 1"), replaces=[OLD])
    said = capsys.readouterr().out
    assert f"{OLD} starts at boot still" in said and "is disabled" not in said


def test_a_record_of_an_older_version_is_gone_on_with(machine: Machine) -> None:
    new = machine.stage("a: 1")
    machine.put(OLD, runs=None)
    assert machine.stopped_at(25, lambda: machine.activate(new))
    begun = state.instance("tiny")["activation"]
    state.update(
        "tiny", activation={key: begun[key] for key in begun if key not in ("replaces", "replaced", "instead")}
    )
    resume.run({})
    assert machine.runs("tiny") == new


def test_one_that_cannot_be_started_keeps_no_other_from_coming_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.owners("first.service", 8100)
    real = systemd.systemctl

    def systemctl(*words: str, **more: Any) -> Any:
        if words[0] == "start" and words[-1] == "first.service":
            raise Failure("systemctl start failed", "see to it")
        return real(*words, **more)

    monkeypatch.setattr(systemd, "systemctl", systemctl)
    bad = machine.stage("a: 1")
    machine.gate_fails.add(bad)
    with pytest.raises(Failure) as caught:
        machine.activate(bad, replaces=["first.service", OLD])
    assert old(machine) == (True, True)
    assert f"{OLD} runs again; putting back failed, too: systemctl start failed" in caught.value.remedy
    assert state.instance("tiny")["activation"]["step"] == "putting-back"  # gpufleet-resume goes on from there
