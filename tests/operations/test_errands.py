"""Commands on boxes over true connections: one login, lines as they come, a box that is off costs itself."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.command import GPUFLEET, run
from tests.operations.boxes import Boxes
from tests.operations.fleet_of_two import instance
from tests.operations.three import CPU, three

__all__ = ["three"]  # the fixture


def test_a_status_connects_once_and_looks_once(three: Boxes, tmp_path: Path) -> None:
    three.answers["health"] = [{"event": "result", "instances": {}}]
    folder = three.folder(tmp_path)
    three.off.add("ampere-1")
    done = run(folder, "status", "inventory/home.py", "--json", program=GPUFLEET)
    assert done.returncode == 1, done.stdout
    boxes = json.loads(done.stdout)["boxes"]
    assert [(box["name"], bool(box["error"])) for box in boxes] == [
        ("turing-1", False),
        ("ampere-1", True),
        ("cpu-1", False),
    ]
    assert boxes[0]["traits"] and boxes[0]["changes"] == [] and boxes[0]["instances"] == []
    assert three.looks == {"turing-1": 1, "cpu-1": 1} == three.logins
    assert sorted(three.asked) == [("cpu-1", "health"), ("turing-1", "health")]


def test_a_job_tells_its_lines_and_how_it_failed(three: Boxes, tmp_path: Path) -> None:
    three.facts["cpu-1"] = {**CPU, "instances": {"qwen": instance()}}
    three.answers["job"] = [
        {"event": "log", "message": "stopping it"},
        {"event": "error", "cause": "no draft was made", "remedy": "look at the model"},
    ]
    done = run(three.folder(tmp_path), "rollback", "inventory/home.py", "cpu-1", program=GPUFLEET)
    assert done.returncode == 1, done.stdout
    assert "cpu-1: stopping it\n" in done.stdout and "cpu-1: no draft was made. Look at the model." in done.stdout
    assert three.logins == {"cpu-1": 1} and [verb for _, verb in three.asked] == ["lock", "job", "lock"]


def test_a_log_is_followed_line_by_line(three: Boxes, tmp_path: Path) -> None:
    three.facts["cpu-1"] = {**CPU, "instances": {"qwen": instance()}}
    three.answers["follow"] = [
        {"event": "log", "message": "2026-11-29T17:40:00Z one"},
        {"event": "progress", "beat": True},
        {"event": "log", "message": "2026-11-29T17:40:01Z two"},
        {"event": "result", "followed": ["qwen"]},
    ]
    done = run(three.folder(tmp_path), "logs", "inventory/home.py", "cpu-1", "--follow", program=GPUFLEET)
    assert (done.returncode, done.stdout) == (0, "2026-11-29T17:40:00Z one\n2026-11-29T17:40:01Z two\n")


def test_a_diff_asks_only_the_look_where_nothing_changes(three: Boxes, tmp_path: Path) -> None:
    done = run(three.folder(tmp_path), "diff", "inventory/home.py", program=GPUFLEET)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines() == [f"{name}: nothing to change" for name in ("turing-1", "ampere-1", "cpu-1")]
    assert three.asked == []


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [*GPUFLEET, *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("command", ["rollback", "restart"])
def test_an_interrupt_leaves_it_running_and_says_so(three: Boxes, tmp_path: Path, command: str) -> None:
    three.facts["cpu-1"] = {**CPU, "instances": {"qwen": instance()}}
    process = started(three.folder(tmp_path), command, "inventory/home.py", "cpu-1")
    while ("cpu-1", "job") not in three.asked and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert f"gpufleet: interrupted; the {command} goes on on the box" in said


def test_watching_finds_a_box_that_comes_back(three: Boxes, tmp_path: Path) -> None:
    three.answers["health"] = [{"event": "result", "instances": {}}]
    three.off.add("cpu-1")
    process = started(three.folder(tmp_path), "status", "inventory/home.py", "--watch", "--json", "--every", "1")
    assert process.stdout
    first = json.loads(process.stdout.readline())
    three.off.clear()
    second = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert [bool(page["boxes"][2]["error"]) for page in (first, second)] == [True, False]
    assert (process.returncode, said) == (130, "")
    assert three.logins == {"turing-1": 1, "ampere-1": 1, "cpu-1": 1}
