"""Rollback, hold and restart, and what an activation tells of itself: measured, kept, put back by its own gate."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from hostkit import (
    activate,
    gate,
    gates,
    hold,
    named,
    release,
    restart,
    resume,
    retire,
    rollback,
    state,
    switch,
    unhold,
)
from hostkit.errors import Failure
from tests.unit.activation_box import Machine, make


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return make(tmp_path, monkeypatch)


@pytest.fixture
def three(machine: Machine) -> tuple[str, str, str]:
    """Releases that were activated, oldest first."""
    digests = [machine.stage(f"a: {number}") for number in range(3)]
    for digest in digests:
        machine.activate(digest)
    return digests[0], digests[1], digests[2]


def back(**more: Any) -> dict[str, Any]:
    return rollback.run({"instance": "tiny", "to": None, "by": "ann@desk", **more})


def test_a_rollback_goes_to_the_release_before_and_holds(
    machine: Machine,
    three: tuple[str, str, str],
) -> None:
    answer = back()
    known = state.instance("tiny")
    assert (answer["digest"], answer["restarted"], machine.runs("tiny"), known["gated"]) == (
        three[1], True, three[1], three[1],
    )  # fmt: skip
    assert (known["held"]["by"], known["held"]["digest"]) == ("ann@desk", three[1])
    assert machine.events("rolled-back", "held") == ["rolled-back", "held"]
    assert [line["outcome"] for line in known["history"]] == ["activated"] * 3 + ["rolled back"]
    assert machine.gated_by[-1] == {"question of": three[1]}


def test_rolled_back_twice_it_swaps_and_with_a_name_goes_there(
    machine: Machine,
    three: tuple[str, str, str],
) -> None:
    back()
    assert back()["digest"] == three[2]
    assert back(to=three[0])["digest"] == three[0] == machine.runs("tiny")


def test_a_fleet_that_is_put_back_is_not_held(machine: Machine, three: tuple[str, str, str]) -> None:
    back(hold=False)
    assert machine.runs("tiny") == three[1] and not state.instance("tiny").get("held")


def test_a_rollback_whose_gate_fails_goes_back_to_what_served(
    machine: Machine,
    three: tuple[str, str, str],
) -> None:
    machine.gate_fails.add(three[1])
    with pytest.raises(Failure, match="the answer is wrong") as caught:
        back()
    assert caught.value.remedy.endswith(f"release {three[2]} serves again")
    assert machine.runs("tiny") == three[2] and not state.instance("tiny").get("held")


def test_no_rollback_to_what_is_not_there(machine: Machine) -> None:
    first = machine.stage("a: 1")
    machine.activate(first)
    with pytest.raises(Failure, match="has no release before"):
        back()
    with pytest.raises(Failure, match="is on release"):
        back(to=first)
    with pytest.raises(Failure, match="any more"):
        back(to="0" * 16)
    never = machine.stage("a: 2")  # staged only: nobody has said how it is gated
    with pytest.raises(Failure, match="nothing says how"):
        back(to=never)
    assert machine.runs("tiny") == first


def test_no_rollback_to_a_release_that_never_passed(machine: Machine) -> None:
    first, bad = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(first)
    machine.gate_fails.add(bad)
    with pytest.raises(Failure):
        machine.activate(bad)
    with pytest.raises(Failure, match="has no release before"):
        back()


def test_no_rollback_onto_a_runtime_that_is_gone(machine: Machine, three: tuple[str, str, str]) -> None:
    (machine.root / "runtimes/engine-1/.gpufleet-complete").unlink()
    with pytest.raises(Failure, match="is not complete") as caught:
        back()
    assert "removed since" in caught.value.remedy and machine.runs("tiny") == three[2]


def test_what_is_held_is_not_activated(machine: Machine, three: tuple[str, str, str]) -> None:
    back()
    with pytest.raises(Failure, match="is held on release") as caught:
        machine.activate(three[2])
    assert "gpufleet unhold" in caught.value.remedy
    machine.activate(three[1])
    assert unhold.run({"instance": "tiny", "by": "me"})["held"]["digest"] == three[1]
    assert unhold.run({"instance": "tiny", "by": "me"}) == {"held": None}
    machine.activate(three[2])
    assert machine.events("held", "unheld") == ["held", "unheld"]


def test_holding_by_hand(machine: Machine, three: tuple[str, str, str]) -> None:
    assert hold.run({"instance": "tiny", "by": "me"})["held"]["digest"] == three[2]
    retire.run({"instances": ["tiny"]})
    assert not state.instance("tiny")["held"]
    with pytest.raises(Failure, match="is not served"):
        hold.run({"instance": "tiny", "by": "me"})


def test_a_restart_measures_and_says_when_it_fails(
    machine: Machine,
    three: tuple[str, str, str],
) -> None:
    answer = restart.run({"instance": "tiny"})
    assert answer["restarted"] and answer["down_seconds"] is not None
    assert state.instance("tiny")["history"][-1]["outcome"] == "restarted"
    machine.gate_fails.add(three[2])
    with pytest.raises(Failure) as caught:
        restart.run({"instance": "tiny"})
    assert caught.value.remedy.endswith("the instance is left as it is")
    assert machine.runs("tiny") == three[2] and state.instance("tiny")["stale"]
    retire.run({"instances": ["tiny"]})
    with pytest.raises(Failure, match="has no release that could be restarted"):
        restart.run({"instance": "tiny"})


def test_what_is_measured(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Down from the stop to the first completion, and not to the end of the gate; null where none served before."""

    def gated(*_: Any, **__: Any) -> dict[str, Any]:
        return {"first_completion_at": time.monotonic() + 100, "ready_seconds": 42.5, "warnings": ["slow"]}

    monkeypatch.setattr(gate, "run", gated)
    first = machine.activate(machine.stage("a: 1"))
    assert (first["down_seconds"], first["ready_seconds"], first["warnings"]) == (None, 42.5, ["slow"])
    second = machine.activate(machine.stage("a: 2"))
    assert 100 <= second["down_seconds"] < 130
    line = state.instance("tiny")["history"][-1]
    assert (line["down_seconds"], line["ready_seconds"]) == (second["down_seconds"], 42.5)


def test_the_history_has_an_end(machine: Machine) -> None:
    digests = [machine.stage("a: 1"), machine.stage("a: 2")]
    for number in range(24):
        machine.activate(digests[number % 2])
    assert len(state.instance("tiny")["history"]) == 20


def test_what_another_model_did_under_the_name_says_nothing_of_the_speed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def gated(*_: Any, history: Any) -> dict[str, Any]:
        seen.append(len(history))
        return {"tokens_per_second": 10.0}

    monkeypatch.setattr(gate, "run", gated)
    for number, model in enumerate(("small", "small", "large", "small")):
        spec = machine.spec(machine.stage(f"a: {number}"))
        shutil.copytree(spec["model"], machine.root / model, dirs_exist_ok=True)
        activate.run({**spec, "model": str(machine.root / model)})
    assert seen == [0, 1, 0, 2]


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


def test_the_whole_spec_is_kept_and_goes_with_its_release(machine: Machine) -> None:
    digests = []
    for number in range(5):
        digests.append(machine.stage(f"a: {number}"))
        machine.activate(digests[-1], leaving=["other"])
    kept = gates.read("tiny", digests[-1])
    wanted = machine.spec(digests[-1])
    del wanted["instead_of"]
    assert kept == wanted
    left = sorted(path.stem for path in (machine.root / "instances/tiny/gates").iterdir())
    assert left == sorted(path.name for path in (machine.root / "instances/tiny/releases").iterdir())
    assert len(left) == switch.KEEP


def test_what_a_rollback_would_go_to_stays_whatever_is_newer(machine: Machine) -> None:
    first, second = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(first)
    machine.activate(second)
    for number in range(3, 6):
        bad = machine.stage(f"a: {number}")
        machine.gate_fails.add(bad)
        with pytest.raises(Failure):
            machine.activate(bad)
    restart.run({"instance": "tiny"})
    assert first in named.kept_releases("tiny") and back()["digest"] == first


def test_more_releases_are_kept_when_asked(machine: Machine) -> None:
    for number in range(7):
        activate.run({**machine.spec(machine.stage(f"a: {number}")), "keep": 5})
    assert len(list((machine.root / "instances/tiny/releases").iterdir())) == 5


def test_a_state_that_cannot_be_read_is_kept_and_what_serves_is_gone_back_to(machine: Machine) -> None:
    good, bad = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(good)
    path = machine.root / "state/state.json"
    for text in ("", "[]", "{"):
        path.write_text(text)
        machine.gate_fails.add(bad)
        with pytest.raises(Failure) as caught:
            machine.activate(bad)
        assert f"release {good} serves again" in caught.value.remedy and machine.runs("tiny") == good
        assert path.with_name("state.json.unreadable").read_text() == text
    assert machine.events("state-lost") == ["state-lost"] * 3


def test_what_another_takes_the_place_of_is_retired_in_the_journal(machine: Machine) -> None:
    machine.activate(machine.stage("b: 1", "old"), "old")
    machine.activate(machine.stage("a: 1"), leaving=["old"])
    assert [line["instance"] for line in machine.journal() if line["event"] == "retired"] == ["old"]


def test_what_is_half_removed_is_no_release(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = machine.stage("a: 0")
    machine.activate(first)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as if the power went at its first file
    for number in range(1, 4):
        machine.activate(machine.stage(f"a: {number}"))
    assert not switch.is_staged("tiny", first)
    with pytest.raises(Failure, match="any more"):
        back(to=first)


def test_kept_gates_that_cannot_be_read_count_as_none(machine: Machine) -> None:
    digest = machine.stage("a: 1")
    machine.activate(digest)
    for text in ("{", "[]", json.dumps({"instance": "tiny"})):
        (machine.root / "instances/tiny/gates" / f"{digest}.json").write_text(text)
        assert gates.read("tiny", digest) is None
    assert str(machine.root / "instances") == release.INSTANCES
