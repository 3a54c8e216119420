"""`gpufleet remove` and `forget`: what is shown, asked of the box, said, kept and forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpufleet import known, left_behind
from gpufleet.errors import BoxError
from gpufleet.inventory import from_file
from tests.command import in_a_terminal
from tests.operations.fleet_of_two import INVENTORY, Boxes, boxes, gpufleet
from tests.unit.fleets import cpu_facts

__all__ = ["boxes"]

GOES = [
    {"kind": "instance", "name": "qwen", "bytes": 5 << 20, "why": "serves on port 8000"},
    {"kind": "runtime", "name": "engine-1", "bytes": 3 << 30, "why": ""},
]
STAYS = [{"kind": "model", "name": "qwen/r1", "bytes": 7 << 30, "why": "go with --models"}]
FOUND: dict[str, Any] = {"goes": GOES, "stays": STAYS, "back": ["vllm.service"], "instances": ["qwen"]}
NOTHING: dict[str, Any] = {"goes": [], "stays": [], "back": [], "instances": []}
DONE = {"started": ["vllm.service"], "failed": []}
EVENTS = {"events": [{"event": "activated"}, {"event": "locked"}], "log": []}
FACTS = Path("inventory/facts/home")


@pytest.fixture
def full(boxes: Boxes) -> Boxes:
    """Both were deployed; `one` has something to be removed."""
    boxes.answers |= {"removable": FOUND, "job": DONE, "journal": EVENTS}
    fleet = from_file(Path("inventory/home.py"))
    for name in ("one", "second"):
        known.keep(FACTS, name, cpu_facts(instances={"qwen": {"port": 8000}}))
    left_behind.note(fleet, ["one", "second"])
    return boxes


def without(name: str) -> None:
    """The inventory without this box."""
    Path("inventory/home.py").write_text(INVENTORY.replace('("one", "second")', f'("{name}",)'))


def verbs(boxes: Boxes) -> list[str]:
    return [verb for verb, _, _ in boxes.called]


def test_a_box_is_removed_after_it_was_shown_and_forgotten(full: Boxes) -> None:
    done = gpufleet("remove", "one", "--yes")
    assert done.exit_code == 0, done.output
    assert verbs(full) == ["removable", "journal", "job"]
    assert full.called[0][2] == {"instance": None, "models": False, "packages": False}
    assert full.called[2][2] == {"verb": "remove", "spec": full.called[0][2]}
    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    assert lines[:6] == [
        "one: goes size",
        "instance qwen 5 MiB serves on port 8000",
        "runtime engine-1 3.0 GiB",
        "one: stays size",
        "model qwen/r1 7.0 GiB go with --models",
        "one: 3.0 GiB would be freed; vllm.service serves again",
    ]
    assert lines[-3:] == [
        "one: vllm.service runs again, as it was before",
        "one: removed",
        "one is in inventory/home.py still: the next deploy sets it up anew, unless you take it out",
    ]
    (kept,) = Path("inventory/reports/home").glob("one-*.journal.jsonl")
    assert [json.loads(line)["event"] for line in kept.read_text().splitlines()] == ["activated", "locked"]
    assert kept.stat().st_mode & 0o077 == 0
    assert not (FACTS / "one.json").exists() and (FACTS / "second.json").exists()
    assert (full.locked, full.gone) == ([f"remove of one/all of {Path.cwd()}/inventory/home.py"], 1)


def test_the_box_is_told_where_its_models_are_to_lie(full: Boxes) -> None:
    """A call before this one may have taken away what led there."""
    text = INVENTORY.replace('"toolkit": "none"', '"toolkit": "none", "models": "/data/models/"')
    assert text != INVENTORY
    Path("inventory/home.py").write_text(text)
    assert gpufleet("remove", "one", "-y", "--models").exit_code == 0
    wanted = {"instance": None, "models": True, "packages": False, "home": "/data/models"}
    assert full.called[0][2] == wanted == full.called[2][2]["spec"]


def test_a_journal_that_was_kept_before_is_not_kept_again(full: Boxes) -> None:
    full.answers["journal"] = {"events": [], "log": []}
    done = gpufleet("remove", "one", "-y")
    assert done.exit_code == 0 and "journal" not in done.output
    assert not list(Path("inventory/reports/home").glob("one-*.journal.jsonl"))


def test_without_a_terminal_nothing_is_removed(full: Boxes) -> None:
    done = gpufleet("remove", "one")
    assert done.exit_code == 2 and "there is no terminal to ask in; add --yes" in done.output
    assert verbs(full) == ["removable"] and (FACTS / "one.json").exists()


@pytest.mark.parametrize(("answer", "called"), [("n\n", 1), ("y\n", 3)])
def test_it_is_asked_first(full: Boxes, monkeypatch: pytest.MonkeyPatch, answer: str, called: int) -> None:
    code, output = in_a_terminal(monkeypatch, answer, "remove", "inventory/home.py", "one")
    assert code == 0 and "Remove this from one? [y/N]" in output
    assert len(full.called) == called


def test_an_instance_goes_alone(full: Boxes) -> None:
    done = gpufleet("remove", "one/qwen", "-y")
    assert done.exit_code == 0, done.output
    assert verbs(full) == ["removable", "job"]
    assert full.called[1][2]["spec"] == {"instance": "qwen", "models": False, "packages": False}
    assert "one/qwen: removed" in done.output and (FACTS / "one.json").exists()
    assert full.gone == 0 and full.unlocked == 1


def test_an_instance_that_serve_lists_still_comes_back(full: Boxes) -> None:
    name = next(iter(from_file(Path("inventory/home.py")).models))
    text = INVENTORY.replace('"serve": []', f'"serve": ["{name}"]')
    Path("inventory/home.py").write_text(text)
    full.answers["removable"] = {**FOUND, "goes": [{**GOES[0], "name": name}]}
    done = gpufleet("remove", f"one/{name}", "-y")
    assert done.exit_code == 0, done.output
    said = f"`serve` of one lists {name} still: the next deploy brings it back, unless you take it out of"
    assert said in done.output or "whether the next deploy brings" in done.output
    assert "unless you take it out of inventory/home.py" in done.output


def test_of_a_box_without_gpufleet_only_the_kit_goes(full: Boxes) -> None:
    full.answers |= {"removable": NOTHING, "job": {"started": [], "failed": []}}
    done = gpufleet("remove", "one", "--models")
    assert done.exit_code == 0, done.output
    assert "one: nothing of gpufleet is left there" in done.output
    assert verbs(full) == ["removable", "job"] and full.locked == []
    assert not (FACTS / "one.json").exists()


def test_an_instance_that_is_not_there_is_no_failure(full: Boxes) -> None:
    full.answers["removable"] = {**NOTHING, "instances": ["ornith"]}
    done = gpufleet("remove", "one/qwen")
    assert done.exit_code == 0 and "one/qwen: nothing of it is left there (it has ornith)" in done.output
    assert verbs(full) == ["removable"] and (FACTS / "one.json").exists()


def test_what_could_not_be_put_back_is_a_failure(full: Boxes) -> None:
    full.answers["job"] = {"started": [], "failed": ["vllm.service does not start. look at it"]}
    done = gpufleet("remove", "one", "-y")
    assert done.exit_code == 1 and "one: vllm.service does not start. look at it" in done.output
    assert "one: removed" in done.output


@pytest.mark.parametrize("verb", ["removable", "journal", "job"])
def test_a_failure_leaves_the_facts_and_lets_go_of_the_lock(full: Boxes, verb: str) -> None:
    def fail(box: str, spec: Any, say: Any) -> None:
        raise BoxError(box, "the disk is read-only", "mend it")

    full.answers[verb] = fail
    done = gpufleet("remove", "one", "-y")
    assert done.exit_code == 1 and "one: the disk is read-only. Mend it." in done.output
    assert "one: removed" not in done.output and (FACTS / "one.json").exists()
    assert full.gone == 0 and full.unlocked == len(full.locked) == (0 if verb == "removable" else 1)


def test_a_box_that_is_off_is_said_to_be(full: Boxes) -> None:
    full.failures["one"] = BoxError("one", "it is off", "turn it on")
    done = gpufleet("remove", "one", "-y")
    assert done.exit_code == 1 and "one: it is off. Turn it on." in done.output and full.called == []


def test_while_a_deploy_holds_the_lock_nothing_is_removed(full: Boxes) -> None:
    held = {"who": "anna", "host": "laptop", "pid": 7, "since": "now", "until": "2030-01-01T00:00:00Z"}
    full.all["one"]["lock"] = held
    done = gpufleet("remove", "one", "-y")
    assert done.exit_code == 4 and "one is locked by anna on laptop (pid 7)" in done.output
    assert verbs(full) == ["removable"]


def test_a_box_that_was_taken_out_is_found_by_its_last_address(full: Boxes) -> None:
    without("second")
    done = gpufleet("remove", "one", "-y")
    assert done.exit_code == 0, done.output
    assert "is in inventory/home.py still" not in done.output
    assert list(left_behind.read(FACTS)) == ["second"]
    again = gpufleet("remove", "one", "-y")
    assert again.exit_code == 2 and "there is no box 'one' in the inventory" in again.output


def test_another_machine_at_that_address_is_left_alone(full: Boxes) -> None:
    without("second")
    known.keep(FACTS, "one", cpu_facts(machine_id="1" * 32))
    full.all["one"]["machine_id"] = "2" * 32
    done = gpufleet("remove", "one", "-y")
    assert done.exit_code == 2 and "is another machine; nothing was removed. Give --address" in done.output
    assert full.called == []
    assert gpufleet("remove", "one", "-y", "--address", "192.0.2.3").exit_code == 0


def test_a_box_of_the_inventory_at_the_given_address_is_left_alone(full: Boxes) -> None:
    """By another name of it, which no address tells."""
    without("second")
    known.keep(FACTS, "second", cpu_facts(machine_id="2" * 32))
    full.all["one"]["machine_id"] = "2" * 32
    done = gpufleet("remove", "one", "-y", "--address", "other-name.example")
    assert done.exit_code == 2 and "what answers there is second of the inventory; nothing was removed" in done.output
    assert full.called == []


def test_a_box_that_was_taken_out_is_named_by_status_and_forgotten(full: Boxes) -> None:
    without("second")
    full.answers["health"] = {"instances": {}}
    line = "one is not in the inventory any more; when last looked at it served qwen on 192.0.2.3."
    said = gpufleet("status")
    assert line in " ".join(said.output.split()), said.output
    as_json = gpufleet("status", "--json")
    assert line in as_json.stderr and line not in as_json.stdout
    assert line in gpufleet("plan").stderr
    assert gpufleet("forget", "one").output == "one: forgotten; what is on it stays there\n"
    assert line not in " ".join(gpufleet("status").output.split())
    nothing = gpufleet("forget", "one")
    assert nothing.exit_code == 2 and nothing.output.endswith("known and not in the inventory: none\n")
    wrong = gpufleet("forget", "second")
    assert (
        wrong.exit_code == 2 and "second is in the inventory: take it out there first, then forget it" in wrong.output
    )


def test_a_name_that_nobody_knows_may_be_a_box_at_an_address(full: Boxes) -> None:
    for word, by_address in (("nope", True), ("nope/qwen", True), ("fleet", False), ("one/a/b", False)):
        done = gpufleet("remove", word)
        assert done.exit_code == 2 and ("--address [USER@]HOST[:PORT]" in done.output) == by_address, done.output
    assert full.called == []


def test_a_path_is_no_name_of_a_box(full: Boxes) -> None:
    Path("notes.json").write_text("{}")
    done = gpufleet("forget", "../../../notes")
    assert done.exit_code == 2 and Path("notes.json").exists()
