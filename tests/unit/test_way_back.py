"""Rollback, hold and restart, and what an activation tells of itself."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from hostkit import activate, gate, hold, restart, retire, rollback, state, switch, unhold
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
