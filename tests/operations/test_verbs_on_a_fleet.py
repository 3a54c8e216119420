"""`gpufleet status`, `diff`, `history`, `unlock`: what they show and end with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpufleet import known
from gpufleet.commands import status as status_command
from gpufleet.errors import BoxError
from tests.command import in_a_terminal
from tests.operations.fleet_of_two import BEFORE, NEW, NOW, Boxes, boxes, gpufleet, instance

__all__ = ["boxes"]

OK = {"ok": True, "status": 200, "seconds": 0.004, "said": ""}
LOCK = {"id": "x", "who": "anna", "host": "laptop", "pid": 7, "since": BEFORE, "until": "2026-11-29T18:00:00Z"}
OFF = BoxError("second", "it is off", "turn it on")


def serving(box: str, spec: dict[str, Any], say: Any) -> dict[str, Any]:
    one = {"health": OK, "metrics": None, "port": 8000, "runtime": "engine-0123456789ab", "model": "qwen/r1"}
    return {"instances": {"qwen": one, "ornith": one}}


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


# status


def test_status_of_a_fleet(boxes: Boxes) -> None:
    boxes.answers["health"] = serving
    done = gpufleet("status")
    assert done.exit_code == 0, done.output
    lines = squeezed(done.output)
    assert lines[0] == "box instance state since release speed runtime model"
    assert f"one qwen serving 5 h {NEW} engine-0123456789ab qwen/r1" in lines
    assert f"ornith serving 5 h {NEW} engine-0123456789ab qwen/r1" in lines
    # the inventory serves nothing, so a deploy would take these away
    assert "one: a deploy would change 2 things: `gpufleet diff inventory/home.py --limit one`" in lines
    assert boxes.options["packages"] and boxes.looks == 0


def test_status_as_json(boxes: Boxes) -> None:
    boxes.answers["health"] = serving
    boxes.failures["second"] = OFF
    done = gpufleet("status", "--json")
    assert done.exit_code == 1
    page = json.loads(done.stdout)
    assert page["schema"] == 1 and [box["name"] for box in page["boxes"]] == ["one", "second"]
    one, second = page["boxes"]
    assert one["changes"] == ["retire qwen: it is in no serve entry", "retire ornith: it is in no serve entry"]
    assert one["instances"][0]["state"] == "serving" and one["instances"][0]["stack"] == "engine"
    assert second["error"] == {"cause": "it is off", "remedy": "turn it on"} and second["instances"] == []


def test_an_instance_that_does_not_serve_is_a_failure(boxes: Boxes) -> None:
    boxes.answers["health"] = {"instances": {}}
    done = gpufleet("status", "--limit", "second")
    assert done.exit_code == 1
    assert "second/qwen: not answering: its port is not known. See `gpufleet logs inventory/home.py second/qwen`." in (
        squeezed(done.output)
    )


def test_a_box_whose_look_told_too_little_is_shown(boxes: Boxes) -> None:
    boxes.answers["health"] = serving
    boxes.all["second"]["os"] = {}
    done = gpufleet("status", "--limit", "second")
    assert done.exit_code == 0
    assert "second: what a deploy would do cannot be told: the probe could not read os ()" in squeezed(done.output)


def test_watching_looks_again_and_finds_a_box_that_is_back(boxes: Boxes, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes.answers["health"] = serving
    boxes.failures["second"] = OFF
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    def back() -> None:
        boxes.failures.clear()
        boxes.facts = boxes.all

    boxes.on_look = back
    monkeypatch.setattr(status_command.time, "sleep", sleep)
    done = gpufleet("status", "--watch", "--json", "--every", "2")
    assert done.exit_code == 130 and slept == [2.0, 2.0, 2.0] and boxes.looks == 2
    pages = [json.loads(line) for line in done.stdout.splitlines()]
    assert [bool(page["boxes"][1]["error"]) for page in pages] == [True, False, False]


# diff


def releases(box: str, spec: dict[str, Any], say: Any) -> dict[str, Any]:
    files = {"serve.yaml": "dtype: half\n", "serve.env": 'HF_TOKEN="abcdef"\n'}
    return {"current": NEW, "gated": NEW, "unit": None, "releases": {NEW: {"files": files, "at": BEFORE}}}


@pytest.fixture
def planned(boxes: Boxes) -> Boxes:
    """`second` is to serve qwen3-0.6b by vLLM on its CPU."""
    page = Path("inventory/home.py")
    served = 'boxes[1][1]["serve"] = ["qwen3-0.6b"]\nglobals()'
    page.write_text(page.read_text().replace("globals()", served, 1))
    boxes.all["second"]["instances"] = {"qwen3-0.6b": instance()}
    boxes.all["one"]["instances"] = {}
    boxes.answers["releases"] = releases
    return boxes


def test_a_diff_shows_each_file_and_every_other_change(planned: Boxes) -> None:
    done = gpufleet("diff")
    assert done.exit_code == 5, done.output
    assert "one: nothing to change" in done.output
    assert "second: put model qwen3-0.6b" in done.output and "second: install runtime vllm-0.27.1-cpu-" in done.output
    assert "second/qwen3-0.6b: serve.yaml changed" in done.output and "--- a/serve.yaml" in done.output
    assert "abcdef" not in done.output and "-HF_TOKEN=<hidden>" in done.output
    assert planned.called == [("releases", "second", {"instance": "qwen3-0.6b"})]
    assert planned.options["packages"]


def test_a_diff_as_json(planned: Boxes) -> None:
    done = gpufleet("diff", "--json")
    page = json.loads(done.stdout)
    assert done.exit_code == 5 and page["schema"] == 1
    one, second = page["boxes"]
    assert one == {"name": "one", "error": None, "refused": [], "drift": [], "changes": [], "held": {}, "instances": []}
    (changed,) = second["instances"]
    assert changed["from"] == NEW and len(changed["to"]) == 16 and changed["reasons"]
    assert {file["path"]: file["kind"] for file in changed["files"]}["serve.yaml"] == "changed"
    assert "abcdef" not in done.output


def test_what_is_held_is_told(planned: Boxes) -> None:
    planned.all["second"]["instances"]["qwen3-0.6b"]["held"] = {"since": BEFORE, "by": "anna", "digest": NEW}
    said = f"second/qwen3-0.6b: held at {NEW} since {BEFORE} by anna: a deploy leaves it, until `gpufleet unhold "
    assert said in gpufleet("diff").output


def test_nothing_to_change(planned: Boxes) -> None:
    done = gpufleet("diff", "--limit", "one")
    assert done.exit_code == 0 and done.output == "one: nothing to change\n"


def test_a_diff_of_a_box_that_is_off_and_of_one_that_is_refused(planned: Boxes) -> None:
    planned.failures["one"] = BoxError("one", "it is off", "turn it on")
    done = gpufleet("diff", "--json")
    assert done.exit_code == 1 and "one: it is off. Turn it on." in done.stderr
    assert json.loads(done.stdout)["boxes"][1] == {
        "name": "one",
        "error": {"cause": "it is off", "remedy": "turn it on"},
    }
    planned.failures.clear()
    planned.all["second"]["python"]["version"] = "3.12.1"
    refused = gpufleet("diff", "--limit", "second")
    assert refused.exit_code == 3 and "second: a deploy is refused: " in refused.output
    assert "Remedy: " in refused.output


# history


EVENTS = [
    {"at": BEFORE, "event": "activation", "step": "staged", "instance": "qwen", "to": NEW},
    {"at": NOW, "event": "activated", "instance": "qwen", "digest": NEW, "seconds": 38.2},
]


def test_the_history_of_a_fleet_and_of_one_box(boxes: Boxes) -> None:
    boxes.answers["journal"] = {"events": EVENTS, "log": []}
    done = gpufleet("history")
    assert done.exit_code == 0, done.output
    assert squeezed(done.output) == [
        "when box instance event details",
        f"{NOW} one qwen activated {NEW}, 38.2 s",
        f"{NOW} second qwen activated {NEW}, 38.2 s",
    ]
    assert "staged" in gpufleet("history", "second", "--all").output
    page = json.loads(gpufleet("history", "one/qwen", "--json", "-n", "1").stdout)
    assert page == {"schema": 1, "events": [{"box": "one", **EVENTS[1]}]}
    assert boxes.called[-1] == ("journal", "one", {"lines": 12, "instance": "qwen", "log": 0})


def test_a_history_of_a_group_of_what_is_not_there_and_of_nothing(boxes: Boxes) -> None:
    boxes.answers["journal"] = {"events": [], "log": []}
    assert gpufleet("history", "fleet").output == "nothing has happened there yet\n"
    wrong = gpufleet("history", "secnd")
    assert wrong.exit_code == 2 and "did you mean 'second'?" in wrong.output
    wrong = gpufleet("history", "one/qwn")
    assert wrong.exit_code == 2 and "did you mean 'qwen'?" in wrong.output


# unlock


def test_unlocking_what_nobody_holds(boxes: Boxes) -> None:
    done = gpufleet("unlock")
    assert done.exit_code == 0 and done.output == "nothing is locked\n" and boxes.called == []


def test_unlocking_shows_the_holder_and_breaks_it_everywhere(boxes: Boxes) -> None:
    boxes.answers["lock"] = {"held": False, "lock": None}
    for facts in boxes.all.values():
        facts["lock"] = LOCK
    done = gpufleet("unlock", "--yes")
    assert done.exit_code == 0 and done.output.splitlines() == [
        f"one, second: locked by anna on laptop (pid 7) since {BEFORE}; it runs out at {LOCK['until']}",
        "unlocked: one, second",
    ]
    assert [(box, spec) for _, box, spec in boxes.called] == [
        (name, {"action": "break", "id": "x"}) for name in ("one", "second")
    ]


@pytest.mark.parametrize(("answer", "broken"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_it_asks_in_a_terminal(boxes: Boxes, monkeypatch: pytest.MonkeyPatch, answer: str, broken: bool) -> None:
    boxes.answers["lock"] = {"held": False, "lock": None}
    boxes.all["one"]["lock"] = LOCK
    code, said = in_a_terminal(monkeypatch, answer, "unlock", "inventory/home.py")
    assert code == 0 and "Break the lock on 1 box? [y/N]" in said
    assert bool(boxes.called) is broken


def test_without_a_terminal_it_wants_a_yes(boxes: Boxes) -> None:
    boxes.all["one"]["lock"] = LOCK
    done = gpufleet("unlock")
    assert done.exit_code == 2 and "nothing was unlocked: there is no terminal to ask in; add --yes" in done.output
    assert boxes.called == []


def test_a_box_that_is_off_keeps_unlock_from_being_sure(boxes: Boxes) -> None:
    boxes.failures["second"] = OFF
    done = gpufleet("unlock", "--yes")
    assert done.exit_code == 1 and "nothing is locked on the boxes that answer" in done.output
    assert "second: it is off. Turn it on." in done.output


def test_settings_of_the_run_that_differ_are_refused_as_a_deploy_refuses_them(boxes: Boxes) -> None:
    page = Path("inventory/home.py")
    page.write_text(page.read_text().replace("globals()", 'boxes[1][1]["rollout"] = {"batch": 3}\nglobals()'))
    for name, facts in boxes.all.items():
        known.keep(Path("inventory/facts/home"), name, facts)
    for command in ("plan", "diff"):
        done = gpufleet(command)
        assert done.exit_code == 2, done.output
        assert "rollout.batch is '25%' for one and 3 for second" in done.output, done.output
        assert gpufleet(command, "--limit", "second").exit_code in (0, 5)
