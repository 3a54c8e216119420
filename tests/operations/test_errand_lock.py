"""`gpufleet rollback` and `restart` hold the fleet's lock as a deploy does, and let go of it however they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.command import GPUFLEET, deploy, run
from tests.operations.rolling import MODEL, Fleet, rolling
from tests.operations.test_locking import begun, held, put


def switching(folder: Path, fleet: Fleet, verb: str, program: list[str] = GPUFLEET) -> subprocess.Popen[str]:
    """The command on box-1, come to where the box works."""
    fleet.paused = verb
    fleet.go.clear()
    process = subprocess.Popen(
        [*program, verb, "inventory/home.py", "box-1"], cwd=folder, stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PYINFRA_PROGRESS": "off"},
    )  # fmt: skip
    while ("box-1", verb) not in fleet.calls:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    return process


def test_a_deploy_comes_after_it_and_names_it(tmp_path: Path) -> None:
    verb = "rollback"
    with rolling(tmp_path / "boxes", 2) as fleet:
        folder = fleet.folder(tmp_path)
        (tmp_path / "elsewhere").mkdir()
        process = switching(folder, fleet, verb)
        assert held(fleet) == ["box-1"]
        for other in (folder, fleet.folder(tmp_path / "elsewhere")):  # on this controller, and on another one
            second = deploy(other, "-y")
            assert second.returncode == 4 and fleet.switched == [], second.stdout
            assert f"is locked by a {verb}, and no box was changed" in second.stdout
            assert f"({verb} of box-1/{MODEL} of {folder}/inventory/home.py)" in second.stdout
        fleet.go.set()
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0 and held(fleet) == [], output
        assert fleet.verbs("box-2").count("lock") == 0


def test_while_a_deploy_runs_it_ends_with_4_and_names_the_deploy(tmp_path: Path) -> None:
    verb = "restart"
    with rolling(tmp_path / "boxes", 2) as fleet:
        folder = fleet.folder(tmp_path)
        fleet.go.clear()
        first = begun(folder, fleet, "release")
        done = run(folder, verb, "inventory/home.py", "box-1", program=GPUFLEET)
        assert done.returncode == 4 and ("box-1", verb) not in fleet.calls, done.stdout
        assert f"(pid {first.pid})" in done.stdout and f"deploy of {folder}/inventory/home.py" in done.stdout
        fleet.go.set()
        output, _ = first.communicate(timeout=60)
        assert first.returncode == 0, output
        put(fleet, "box-1")  # another controller's
        done = run(folder, verb, "inventory/home.py", "box-1", program=GPUFLEET)
        assert done.returncode == 4 and ("box-1", verb) not in fleet.calls, done.stdout
        assert "box-1 is locked by anna on desk (pid 7)" in done.stdout and held(fleet) == ["box-1"]


@pytest.mark.parametrize(
    ("verb", "number"), [("restart", signal.SIGINT), ("rollback", signal.SIGTERM), ("restart", signal.SIGHUP)]
)
def test_interrupted_it_lets_go(tmp_path: Path, verb: str, number: signal.Signals) -> None:
    with rolling(tmp_path / "boxes", 1) as fleet:
        process = switching(fleet.folder(tmp_path), fleet, verb)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 130 and held(fleet) == [], output
        assert f"gpufleet: interrupted; the {verb} goes on on the box" in output


def test_one_that_fails_lets_go(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 1) as fleet:
        fleet.broken["box-1"] = {"restart"}
        done = run(fleet.folder(tmp_path), "restart", "inventory/home.py", "box-1", program=GPUFLEET)
        assert done.returncode == 1 and "no restart today" in done.stdout and held(fleet) == []


def test_one_that_was_killed_is_taken_over_by_the_next(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 1) as fleet:
        folder = fleet.folder(tmp_path)
        process = switching(folder, fleet, "restart")
        process.kill()
        process.communicate()
        fleet.go.set()
        assert held(fleet) == ["box-1"]
        done = run(folder, "rollback", "inventory/home.py", "box-1", program=GPUFLEET)
        assert done.returncode == 0 and held(fleet) == [], done.stdout
        assert "box-1: the lock of a run that is gone is taken over" in done.stdout


def test_it_is_renewed_while_the_box_works(tmp_path: Path) -> None:
    soon = "import pyinfra_cli; from operations import lease; lease.RENEW_SECONDS = 0.2; "
    program = [sys.executable, "-c", f"{soon}from gpufleet.cli import main; main()"]
    with rolling(tmp_path / "boxes", 1) as fleet:
        process = switching(fleet.folder(tmp_path), fleet, "restart", program)
        first = json.loads(fleet.lock_of("box-1").read_text())["until"]
        while json.loads(fleet.lock_of("box-1").read_text())["until"] == first:
            assert process.poll() is None
            time.sleep(0.02)
        fleet.go.set()
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0 and held(fleet) == [], output
