"""Two deploys at once, deploys that died, runs that are interrupted: one at a time, and nothing is left locked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpufleet import report_schema
from tests.command import PYINFRA, deploy
from tests.operations.rolling import Fleet, new_digest, rolling
from tests.operations.test_rollout import report
from tests.operations.three import state


def begun(folder: Path, fleet: Fleet, verb: str, program: list[str] = PYINFRA) -> subprocess.Popen[str]:
    """A deploy that has come to this verb, to `release` on all boxes."""
    process = subprocess.Popen(
        [*program, "-y", "inventory/home.py", "deploy.py"], cwd=folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "PYINFRA_PROGRESS": "off"},
    )  # fmt: skip
    while [called for _, called in fleet.calls].count(verb) < (len(fleet.boxes.facts) if verb == "release" else 1):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    return process


def held(fleet: Fleet) -> list[str]:
    return [name for name in fleet.boxes.facts if fleet.lock_of(name).exists()]


def put(fleet: Fleet, name: str, **more: Any) -> dict[str, Any]:
    """Another's lock on a box, as its look tells and its file says."""
    lock = {
        "id": "elsewhere-1", "who": "anna", "host": "desk", "pid": 7, "run": "r-1", "what": "deploy of home.py",
        "since": "2026-11-30T01:00:00Z", "until": "2126-11-30T01:00:00Z", **more,
    }  # fmt: skip
    fleet.lock_of(name).parent.mkdir(exist_ok=True)
    fleet.lock_of(name).write_text(json.dumps(lock))
    return lock


def test_the_second_of_two_ends_with_4_and_names_the_first(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 3) as fleet:
        fleet.go.clear()
        folder = fleet.folder(tmp_path)
        first = begun(folder, fleet, "release")
        calls = len(fleet.calls)
        (tmp_path / "elsewhere").mkdir()  # another controller
        other = fleet.folder(tmp_path / "elsewhere")
        second = deploy(other, "-y")
        assert first.poll() is None
        assert second.returncode == 4, second.stdout
        assert {verb for _, verb in fleet.calls[calls:]} == {"lock"}
        assert "box-1 is locked by another deploy, and no box was changed" in second.stdout
        assert f"(deploy of {folder}/inventory/home.py)" in second.stdout and "gpufleet unlock" in second.stdout
        assert state(second.stdout, "box-3") == "not touched: the fleet is locked"
        assert report(other)["end"] == "locked" and len(held(fleet)) == 3
        fleet.go.set()
        output, _ = first.communicate(timeout=120)
        assert first.returncode == 0 and held(fleet) == [], output


def test_two_for_different_boxes_of_one_inventory_are_two_at_once_as_well(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 2) as fleet:
        fleet.go.clear()
        folder = fleet.folder(tmp_path)
        first = begun(folder, fleet, "lock", [*PYINFRA, "--limit", "box-1"])
        second = deploy(folder, "-y", "--limit", "box-2")
        assert second.returncode == 4, second.stdout
        assert "the fleet is locked by another deploy, and no box was changed" in second.stdout
        assert "inventory/home.py --limit box-1)" in second.stdout
        assert "box-2" not in {name for name, _ in fleet.calls} and held(fleet) == ["box-1"]
        fleet.go.set()
        output, _ = first.communicate(timeout=120)
        assert first.returncode == 0, output
        third = deploy(folder, "-y", "--limit", "box-2")
        assert third.returncode == 0, third.stdout


def test_a_lock_that_the_look_tells_of_refuses_a_change_and_nothing_else(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 2) as fleet:
        fleet.boxes.facts["box-2"]["lock"] = put(fleet, "box-2")
        folder = fleet.folder(tmp_path)
        done = deploy(folder, "-y")
        assert done.returncode == 4 and fleet.calls == [], done.stdout
        assert "box-2 is locked by another deploy" in done.stdout
        assert "anna from desk since 2026-11-30T01:00:00Z, run r-1 (deploy of home.py)" in done.stdout
        dry = deploy(folder, "--dry")
        assert dry.returncode == 5 and "box-2 is locked by another deploy now" in dry.stdout, dry.stdout
    with rolling(tmp_path / "others", box_1=new_digest()) as fleet:
        fleet.boxes.facts["box-1"]["lock"] = put(fleet, "box-1")
        (tmp_path / "same").mkdir()
        done = deploy(fleet.folder(tmp_path / "same"), "-y")
        assert done.returncode == 0 and fleet.calls == [], done.stdout


def test_one_box_that_another_has_is_enough_and_what_was_taken_is_given_back(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 3) as fleet:
        put(fleet, "box-3")  # since the look
        done = deploy(fleet.folder(tmp_path), "-y")
        assert done.returncode == 4 and {verb for _, verb in fleet.calls} == {"lock"}, done.stdout
        assert held(fleet) == ["box-3"]


def test_a_deploy_that_was_killed_leaves_a_lock_that_the_next_takes_over(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 2) as fleet:
        folder = fleet.folder(tmp_path)
        fleet.go.clear()
        first = begun(folder, fleet, "release")
        first.kill()
        first.communicate()
        fleet.go.set()
        assert held(fleet) == ["box-1", "box-2"]
        for name in held(fleet):
            fleet.boxes.facts[name]["lock"] = json.loads(fleet.lock_of(name).read_text())
        done = deploy(folder, "-y")
        assert done.returncode == 0 and held(fleet) == [], done.stdout
        assert "the lock of a run that is gone is taken over" in done.stdout


SOON = "import pyinfra_cli; from operations import lease; lease.RENEW_SECONDS = 0.2; "


def test_a_run_whose_lock_was_broken_ends_before_its_next_operation(tmp_path: Path) -> None:
    program = [sys.executable, "-c", f"{SOON}from pyinfra_cli.main import main; main()"]
    with rolling(tmp_path / "boxes", 2) as fleet:
        folder = fleet.folder(tmp_path)
        fleet.go.clear()
        process = begun(folder, fleet, "release", program)
        first = json.loads(fleet.lock_of("box-2").read_text())["until"]
        while json.loads(fleet.lock_of("box-2").read_text())["until"] == first:
            assert process.poll() is None
            time.sleep(0.02)
        put(fleet, "box-2")
        asked = fleet.verbs("box-2").count("lock")
        while fleet.verbs("box-2").count("lock") < asked + 2:
            assert process.poll() is None
            time.sleep(0.02)
        fleet.go.set()
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 4 and fleet.switched == [], output
        assert "box-2: the lock of this run was broken, and anna from desk since" in output
        assert state(output, "box-1") == "not touched: the run ended before its turn"
        assert held(fleet) == ["box-2"] and report(folder)["end"] == "locked"


def test_one_whose_lease_is_over_is_taken_without_a_word(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 2) as fleet:
        put(fleet, "box-1", until="2026-01-01T00:00:00Z")
        done = deploy(fleet.folder(tmp_path), "-y")
        assert done.returncode == 0 and held(fleet) == [] and "taken over" not in done.stdout, done.stdout


def test_a_box_that_cannot_be_locked_is_left_as_it_is(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 3) as fleet:
        fleet.broken["box-1"] = {"lock"}
        done = deploy(fleet.folder(tmp_path), "-y")
        assert done.returncode == 1 and fleet.switched == ["box-2", "box-3"], done.stdout
        assert state(done.stdout, "box-1") == "failed" and set(fleet.verbs("box-1")) == {"lock"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("verb", ["activate", "release"])
def test_interrupted_it_lets_go_begins_nothing_more_and_reports(
    tmp_path: Path, number: signal.Signals, verb: str
) -> None:
    with rolling(tmp_path / "boxes", 3) as fleet:
        fleet.paused = verb
        fleet.go.clear()
        folder = fleet.folder(tmp_path)
        process = begun(folder, fleet, verb)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 130 and "Traceback" not in output, output
        assert held(fleet) == [] and set(fleet.switched) <= {"box-1"}
        assert fleet.verbs("box-3") == ["lock", "release", "lock"]
        found = report(folder)
        assert (found["end"], found["exit_code"]) == ("interrupted", 130)
        assert found["boxes"]["box-1"]["steps"][-1]["outcome"] == "interrupted"
        report_schema.Report.model_validate(found)


def test_secrets_are_in_no_report(tmp_path: Path) -> None:
    secret, word, short = "hunter2-and-more", "correct horse battery", "any"  # the SSH password of the boxes
    with rolling(tmp_path / "boxes", 2) as fleet:
        fleet.bad.add("box-1")
        fleet.says = f"TOKEN is {secret}, sudo said {word}, and {short} too"
        folder = fleet.folder(tmp_path)
        data = {
            "serve": ["qwen3-0.6b"],
            "serve_env": {"HARMLESS_NAME": secret},
        }
        folder = fleet.boxes.folder(tmp_path, box_1=data, box_2=data)
        done = deploy(folder, "-y", GPUFLEET_SUDO_PASSWORD=word)
        assert done.returncode == 1, done.stdout
        (path,) = (folder / "inventory/reports/home").glob("*.json")
        text = path.read_text()
        assert "TOKEN is <hidden>, sudo said <hidden>, and <hidden> too" in text
        assert secret not in text and word not in text
        assert "token=<hidden> is wrong" in json.loads(text)["boxes"]["box-1"]["failure"]["log"]
