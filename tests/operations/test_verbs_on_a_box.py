"""`gpufleet rollback`, `restart`, `hold`, `unhold`, `logs`: what is asked of the box, said and ended with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpufleet.errors import BoxError
from tests.operations.fleet_of_two import BEFORE, NEW, NOW, OLD, Boxes, boxes, gpufleet, instance

__all__ = ["boxes"]

Say = Callable[[str, str], None]
DONE = {"restarted": True, "seconds": 38.25, "down_seconds": 31.0, "ready_seconds": 30.0, "gate": {}, "warnings": []}
LOCK = {"id": "x", "who": "anna", "host": "laptop", "pid": 7, "since": BEFORE, "until": "2026-11-29T18:00:00Z"}


def working(box: str, spec: dict[str, Any], say: Say) -> dict[str, Any]:
    say(box, "stopping it: --api-key abcdef")
    return {**DONE, "digest": OLD, "warnings": ["slower than before"]}


def failing(box: str, spec: dict[str, Any], say: Say) -> dict[str, Any]:
    raise BoxError(box, "no draft was made", f"see the log; release {NEW} serves again")


def broken(box: str, spec: dict[str, Any], say: Say) -> dict[str, Any]:
    raise BoxError(box, "the connection broke off (timed out)", "deploy again")


def test_a_rollback_runs_as_a_job_and_ends_held(boxes: Boxes) -> None:
    boxes.answers["job"] = working
    done = gpufleet("rollback", "second/qwen")
    assert done.exit_code == 0, done.output
    ((verb, box, asked),) = boxes.called
    assert (verb, box, asked["verb"]) == ("job", "second", "rollback")
    assert asked["spec"].pop("by") and asked["spec"] == {"instance": "qwen", "to": None}
    assert done.output.splitlines() == [
        f"second/qwen: from {NEW} to the one before",
        "second: stopping it: --api-key <hidden>",
        f"second/qwen: {OLD} serves again (38.2 s, 31.0 s of it down)",
        "second/qwen: warning: slower than before",
        "second/qwen: held: deploys leave it as it is, until `gpufleet unhold inventory/home.py second/qwen`",
    ]
    assert "goes on on the box" in boxes.options["interrupted"]


def test_a_box_means_its_instances_one_after_another(boxes: Boxes) -> None:
    boxes.answers["job"] = working
    assert gpufleet("rollback", "one").exit_code == 0
    assert [asked["spec"]["instance"] for _, _, asked in boxes.called] == ["qwen", "ornith"]


def test_the_first_failure_is_the_last_and_never_a_success(boxes: Boxes) -> None:
    boxes.answers["job"] = failing
    done = gpufleet("rollback", "one")
    assert done.exit_code == 1 and len(boxes.called) == 1
    assert f"one: no draft was made. See the log; release {NEW} serves again." in done.output
    assert "not done after that failure: ornith" in done.output and "held" not in done.output


@pytest.mark.parametrize("command", ["rollback", "restart"])
def test_a_connection_that_breaks_off_leaves_it_running(boxes: Boxes, command: str) -> None:
    boxes.answers["job"] = broken
    done = gpufleet(command, "second")
    assert done.exit_code == 1 and "deploy again" not in done.output
    assert "What was begun goes on there: `gpufleet status inventory/home.py --limit second`" in done.output


def test_to_a_release_by_the_beginning_of_its_digest(boxes: Boxes) -> None:
    boxes.answers["job"] = working
    boxes.all["one"]["instances"]["ornith"]["releases"].append("cccc000000000000")
    assert gpufleet("rollback", "one", "--to", "cccc").exit_code == 0
    assert boxes.called[0][2]["spec"]["to"] == "cccc000000000000"
    assert [asked["spec"]["instance"] for _, _, asked in boxes.called] == ["ornith"]
    wrong = gpufleet("rollback", "one/qwen", "--to", "cccc")
    assert wrong.exit_code == 2 and "is no release that one keeps" in wrong.output
    assert len(boxes.called) == 1


def test_a_rollback_that_was_done_is_not_done_twice(boxes: Boxes) -> None:
    history = [{"at": BEFORE, "digest": OLD, "outcome": "rolled back"}]
    held = {"since": BEFORE, "by": "anna", "digest": OLD}
    boxes.all["second"]["instances"]["qwen"] = instance(current=OLD, gated=OLD, held=held, history=history)
    done = gpufleet("rollback", "second")
    assert done.exit_code == 2 and boxes.called == []
    assert (
        f"was rolled back to {OLD} at {BEFORE} already, and is held; to go to another release give --to" in done.output
    )
    assert NEW in done.output
    boxes.answers["job"] = working
    assert gpufleet("rollback", "second", "--to", NEW).exit_code == 0


@pytest.mark.parametrize("command", ["rollback", "restart"])
def test_while_a_deploy_holds_the_lock_nothing_is_switched(boxes: Boxes, command: str) -> None:
    boxes.all["second"]["lock"] = LOCK
    done = gpufleet(command, "second")
    assert done.exit_code == 4 and boxes.called == []
    assert "second is locked by anna on laptop (pid 7)" in done.output
    assert "gpufleet unlock inventory/home.py" in done.output
    boxes.all["second"]["lock"] = {**LOCK, "until": BEFORE}
    boxes.answers["job"] = working
    assert gpufleet(command, "second").exit_code == 0
    assert len(boxes.locked) == boxes.unlocked == 2
    assert boxes.locked[1] == f"{command} of second/qwen of {Path.cwd()}/inventory/home.py"


@pytest.mark.parametrize("command", ["rollback", "restart", "hold", "unhold", "logs"])
def test_wrong_names_get_the_nearest_right_one(boxes: Boxes, command: str) -> None:
    box = gpufleet(command, "secnd")
    assert box.exit_code == 2 and "did you mean 'second'?" in box.output
    one = gpufleet(command, "second/qwn")
    assert one.exit_code == 2 and "second has no instance 'qwn'; did you mean 'qwen'?" in one.output
    assert boxes.called == []


@pytest.mark.parametrize("command", ["rollback", "restart", "hold", "unhold", "logs"])
def test_a_box_that_is_off_is_said_to_be(boxes: Boxes, command: str) -> None:
    boxes.failures["second"] = BoxError("second", "it is off", "turn it on")
    done = gpufleet(command, "second")
    assert done.exit_code == 1 and "second: it is off. Turn it on." in done.output and boxes.called == []


def test_a_restart_is_a_job_and_a_failed_gate_a_failure(boxes: Boxes) -> None:
    boxes.answers["job"] = working
    done = gpufleet("restart", "second")
    ((verb, box, asked),) = boxes.called
    assert (done.exit_code, verb, box, asked["verb"], asked["spec"]["instance"]) == (
        0,
        "job",
        "second",
        "restart",
        "qwen",
    )
    assert asked["spec"]["by"]
    assert "second/qwen: serves again (38.2 s, 31.0 s of it down)" in done.output
    boxes.answers["job"] = failing
    assert gpufleet("restart", "second").exit_code == 1


def test_a_hold_and_its_end(boxes: Boxes) -> None:
    boxes.answers |= {"hold": {}, "unhold": {}}
    done = gpufleet("hold", "second")
    assert done.exit_code == 0, done.output
    assert f"second/qwen: held at {NEW}, until `gpufleet unhold inventory/home.py second/qwen`" in done.output
    ((verb, _, asked),) = boxes.called
    assert verb == "hold" and asked["instance"] == "qwen" and asked["by"]
    assert "second/qwen: is not held" in gpufleet("unhold", "second").output
    boxes.all["second"]["instances"]["qwen"]["held"] = {"since": NOW, "by": "anna@laptop", "digest": NEW}
    assert f"is held at {NEW} since {NOW} by anna@laptop already" in gpufleet("hold", "second").output
    assert len(boxes.called) == 1
    assert "the next deploy brings it" in gpufleet("unhold", "second").output
    assert boxes.called[-1][0] == "unhold" and boxes.called[-1][2]["instance"] == "qwen"


def test_logs_of_one_instance_and_of_several(boxes: Boxes) -> None:
    boxes.answers["journal"] = lambda box, spec, say: {"events": [], "log": [f"{NOW} from {spec['instance']} \x1b[31m"]}
    done = gpufleet("logs", "second", "-n", "7")
    assert done.exit_code == 0 and done.output == f"{NOW} from qwen \ufffd[31m\n"
    assert boxes.called == [("journal", "second", {"lines": 0, "instance": "qwen", "log": 7})]
    assert gpufleet("logs", "one").output.splitlines()[::2] == ["one/qwen:", "one/ornith:"]


def test_following_a_log(boxes: Boxes) -> None:
    def follow(box: str, spec: dict[str, Any], say: Say) -> dict[str, Any]:
        say(box, f"{NOW} qwen args: {{'api_key': ['abcdef']}}")
        return {"followed": spec["instances"]}

    boxes.answers["follow"] = follow
    done = gpufleet("logs", "one", "--follow")
    assert done.exit_code == 0 and done.output == f"{NOW} qwen args: {{'api_key': <hidden>}}\n"
    assert boxes.called == [("follow", "one", {"instances": ["qwen", "ornith"], "lines": 100})]
