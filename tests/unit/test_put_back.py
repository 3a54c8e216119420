"""What fails or is cut off ends on a release that serves: the one before, by its own gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hostkit import gate, resume, state, switch
from hostkit.errors import Failure
from tests.unit.activation_box import Machine, make


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return make(tmp_path, monkeypatch)


def test_a_release_is_put_back_by_its_own_gate(machine: Machine) -> None:
    good, bad = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(good)
    machine.gate_fails.add(bad)
    with pytest.raises(Failure):
        machine.activate(bad)
    assert machine.gated_by[-2:] == [{"question of": bad}, {"question of": good}]


def test_a_release_of_an_older_version_has_only_to_answer(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, bad = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(good)
    (machine.root / "instances/tiny/gates" / f"{good}.json").unlink()
    machine.gate_fails.add(bad)
    waited: list[tuple[Any, ...]] = []
    monkeypatch.setattr(gate, "wait", lambda *arguments: waited.append(arguments))
    with pytest.raises(Failure, match="the answer is wrong"):
        machine.activate(bad)
    assert machine.runs("tiny") == good and waited[0][1] == 8000


def test_what_is_put_back_and_does_not_answer_is_said(machine: Machine) -> None:
    good, bad = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(good)
    machine.gate_fails |= {good, bad}
    with pytest.raises(Failure) as caught:
        machine.activate(bad)
    assert f"release {good} was put back and does not answer: the answer is wrong" in caught.value.remedy
    known = state.instance("tiny")
    assert (known["gated"], known["stale"], known["activation"]) == (good, True, None)
    assert machine.journal()[-1]["ok"] is False


def test_what_fails_before_the_stop_stops_nothing(machine: Machine) -> None:
    good, new = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(good)
    machine.ports = {"8000": {"pid": 5, "command": "nginx", "unit": "nginx.service"}}
    pid = machine.units["gpufleet-tiny.service"]
    with pytest.raises(Failure, match="taken by nginx") as caught:
        machine.activate(new)
    assert caught.value.remedy.endswith(f"; nothing was stopped, release {good} serves as before")
    assert machine.units["gpufleet-tiny.service"] == pid
    known = state.instance("tiny")
    assert (known["gated"], known["stale"], known["activation"]) == (good, False, None)


def test_a_way_back_that_fails_is_tried_again_by_resume(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, bad = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(good)
    machine.gate_fails.add(bad)
    to = switch.to

    def broken(instance: str, digest: str) -> None:
        if digest == good:
            raise Failure("systemctl daemon-reload failed", "look at it")
        to(instance, digest)

    monkeypatch.setattr(switch, "to", broken)
    with pytest.raises(Failure) as caught:
        machine.activate(bad)
    assert "putting back failed, too: systemctl daemon-reload failed" in caught.value.remedy
    assert state.instance("tiny")["activation"]["step"] == "putting-back"
    monkeypatch.setattr(switch, "to", to)
    assert "it was being put back" in resume.run({})["resumed"]["tiny"]
    assert machine.runs("tiny") == good and not state.instance("tiny")["activation"]


def test_cut_off_a_second_time_it_is_put_back(machine: Machine) -> None:
    old, new = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(old)
    machine.stopped_at(30, lambda: machine.activate(new))
    assert state.instance("tiny")["activation"]["attempts"] == 1
    machine.stopped_at(30, lambda: resume.run({}))
    assert state.instance("tiny")["activation"]["attempts"] == 2
    assert "second time" in resume.run({})["resumed"]["tiny"]
    assert machine.runs("tiny") == old == state.instance("tiny")["gated"]
    assert machine.events("resumed") == ["resumed", "resumed"]


def test_one_that_cannot_be_gone_on_with_keeps_no_other_from_it(machine: Machine) -> None:
    good = machine.stage("b: 1", "zeta")
    machine.stopped_at(20, lambda: machine.activate(good, "zeta"))
    state.update("alpha", activation={"to": "nonsense"})
    assert resume.run({})["resumed"]["zeta"] == f"release {good} serves"
