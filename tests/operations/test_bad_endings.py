"""Runs whose output or whose report goes nowhere: what was done, its exit code, the lock and the report are as ever."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gpufleet import report_schema
from tests.command import PYINFRA, deploy
from tests.operations.rolling import OLD, Fleet, rolling
from tests.operations.test_locking import begun, held
from tests.operations.test_rollout import report

CALL = [*PYINFRA, "-y", "inventory/home.py", "deploy.py"]


def unread(folder: Path, **more: Any) -> subprocess.Popen[bytes]:
    """A deploy whose output nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYINFRA_PROGRESS": "off"}
    process = subprocess.Popen(
        CALL, cwd=folder, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing, env=environment, **more
    )
    os.close(writing)
    return process


def until(fleet: Fleet, process: subprocess.Popen[Any], verb: str) -> None:
    while verb not in [called for _, called in fleet.calls]:
        assert process.poll() is None
        time.sleep(0.02)


def test_a_deploy_whose_output_nobody_reads_is_done_and_reported(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 3) as fleet:
        folder = fleet.folder(tmp_path)
        assert unread(folder).wait(120) == 0
        assert len(fleet.switched) == 3 and held(fleet) == []
        assert (report(folder)["end"], report(folder)["exit_code"]) == ("done", 0)


def test_one_that_fails_there_is_no_success(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 3) as fleet:
        fleet.bad.add("box-1")
        folder = fleet.folder(tmp_path)
        assert unread(folder).wait(120) == 1
        assert fleet.switched == ["box-1"] and held(fleet) == []
        assert report(folder)["boxes"]["box-1"]["failure"]["remedy"].endswith(f"release {OLD} serves again")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_that_is_interrupted_lets_go_and_reports(tmp_path: Path, number: signal.Signals) -> None:
    with rolling(tmp_path / "boxes", 2) as fleet:
        fleet.paused = "activate"
        fleet.go.clear()
        folder = fleet.folder(tmp_path)
        process = unread(folder)
        until(fleet, process, "activate")
        process.send_signal(number)
        assert process.wait(60) == 130 and held(fleet) == []
        assert report(folder)["end"] == "interrupted"


def test_one_whose_terminal_is_gone_lets_go_and_reports(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 2) as fleet:
        fleet.paused = "activate"
        fleet.go.clear()
        folder = fleet.folder(tmp_path)
        ours, theirs = os.openpty()
        process = subprocess.Popen(
            CALL, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**os.environ, "PYINFRA_PROGRESS": "off"},
        )  # fmt: skip
        os.close(theirs)
        until(fleet, process, "activate")
        os.close(ours)  # whoever writes there now gets EIO
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 130 and held(fleet) == []
        assert report(folder)["end"] == "interrupted"


def test_interrupted_twice_it_ends_at_once_and_still_reports(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 2) as fleet:
        fleet.paused = "activate"
        fleet.go.clear()
        folder = fleet.folder(tmp_path)
        process = begun(folder, fleet, "activate")
        fleet.paused = "lock"  # so that it cannot be let go of
        process.send_signal(signal.SIGINT)
        while fleet.verbs("box-1").count("lock") < 2:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 130 and "Traceback" not in output, output
        found = report(folder)
        assert (found["end"], found["boxes"]["box-1"]["steps"][-1]["outcome"]) == ("interrupted", "interrupted")
        report_schema.Report.model_validate(found)


def test_a_report_that_cannot_be_kept_changes_no_exit_code(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 1) as fleet:
        folder = fleet.folder(tmp_path)
        (folder / "inventory" / "reports").write_text("no folder")
        done = deploy(folder, "-y")
        assert done.returncode == 0 and fleet.switched == ["box-1"], done.stdout
        assert "the run's report cannot be kept: [Errno 20] Not a directory" in done.stdout


def test_a_log_that_is_no_text_costs_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fleet, "_journal", lambda *_: {"events": [], "log": ["engine: \udc80\udcff is no letter"]})
    with rolling(tmp_path / "boxes", 1) as fleet:
        fleet.bad.add("box-1")
        folder = fleet.folder(tmp_path)
        done = deploy(folder, "-y")
        assert done.returncode == 1 and "cannot be kept" not in done.stdout, done.stdout
        assert report(folder)["boxes"]["box-1"]["failure"]["log"] == "engine: ?? is no letter"
