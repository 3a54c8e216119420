"""Jobs: a verb in a transient unit, followed to its end, attached to when it runs, and told how it was ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostkit import events, job, shell, systemd
from hostkit.errors import Failure

# A kit whose verb says what the spec tells it to, and waits for a file where it says so.
KIT = """\
import json, os, sys, time
spec = json.loads(sys.stdin.readline())
for line in spec["says"]:
    if line == "wait":
        while not os.path.exists(spec["until"]):
            time.sleep(0.01)
    elif line == "die":
        os.kill(os.getpid(), 9)
    else:
        print(line if isinstance(line, str) else json.dumps(line), flush=True)
"""
# Starts the command in the background with the files of the unit's properties, as systemd would.
SYSTEMD_RUN = f"""\
#!{sys.executable}
import os, subprocess, sys
words = sys.argv[1:]
with open({{folder!r}} + "/calls", "a") as handle:
    handle.write(" ".join(words) + "\\n")
unit = next(w for w in words if w.startswith("--unit="))[len("--unit="):]
properties = [w[len("--property="):] for w in words if w.startswith("--property=")]
given = dict(p.split("=", 1) for p in properties)
with open(given["StandardInput"][len("file:"):], "rb") as question, \\
     open(given["StandardOutput"][len("append:"):], "ab") as said:
    process = subprocess.Popen(words[words.index("--") + 1:], stdin=question, stdout=said, stderr=subprocess.DEVNULL)
with open({{folder!r}} + "/" + unit, "w") as handle:
    handle.write(str(process.pid))
"""
RESULT = {"event": "result", "path": "/there"}
LOG = {"event": "log", "message": "at work"}
PROGRESS = {"done": 3, "event": "progress", "name": "ö", "of": 7}


class Systemd:
    """Units that the stand-in of systemd-run has started."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.forgotten: list[str] = []
        self.ended = "inactive"  # what systemd says of a unit that ended
        program = root / "bin/systemd-run"
        program.parent.mkdir()
        program.write_text(SYSTEMD_RUN.format(folder=str(root)))
        program.chmod(0o755)
        (root / "kit").write_text(KIT)
        monkeypatch.setattr(shell, "ENVIRONMENT", {**shell.ENVIRONMENT, "PATH": f"{program.parent}:/usr/bin:/bin"})
        monkeypatch.setattr(sys, "argv", [str(root / "kit")])
        monkeypatch.setattr(job, "JOBS", str(root / "gpufleet/jobs"))
        monkeypatch.setattr(job, "SECONDS", 0.01)
        monkeypatch.setattr(job, "LOOK_SECONDS", 0.02)
        monkeypatch.setattr(systemd, "show", self.show)
        monkeypatch.setattr(systemd, "systemctl", self.systemctl)

    def pid(self, unit: str) -> int | None:
        path = self.root / unit
        return int(path.read_text()) if path.exists() and path.read_text() else None

    def show(self, unit: str) -> dict[str, Any]:
        pid = self.pid(unit)
        active = "active" if pid and alive(pid) else self.ended if pid else "inactive"
        return {"active": active, "sub": "", "pid": pid, "job": False}

    def systemctl(self, *arguments: str, allowed: bool = False) -> str:
        if arguments[0] == "reset-failed":
            self.forgotten.append(arguments[1])
            return ""
        return "LoadState=loaded\nResult=signal\nExecMainStatus=9\n"

    @property
    def calls(self) -> list[str]:
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def left(self) -> list[str]:
        return [name for name in os.listdir(job.JOBS) if name != ".lock"]


def alive(pid: int) -> bool:
    """Of a process that nobody waits for, too: it stays as a zombie of whoever adopts it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    found = Systemd(tmp_path, monkeypatch)
    yield found
    for unit in found.root.glob("gpufleet-job-*"):  # of a test that failed in the middle
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(unit.read_text()), signal.SIGKILL)


def spec_of(*says: object, **more: Any) -> dict[str, Any]:
    return {"verb": "runtime", "spec": {"says": list(says), **more}}


def wait_for(what: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not what():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def test_events_pass_through_unchanged_and_nothing_is_left(units: Systemd, capsys: pytest.CaptureFixture[str]) -> None:
    line = '{"event": "log",   "message": "spaced"}'
    assert job.run(spec_of(line, PROGRESS, "no event", RESULT)) == {"path": "/there"}
    assert capsys.readouterr().out.splitlines() == [line, json.dumps(PROGRESS), "no event"]
    assert units.left() == []
    assert len(units.calls) == 1


def test_what_the_verb_fails_with_is_what_the_job_fails_with(units: Systemd) -> None:
    with pytest.raises(Failure, match="the wheel is damaged") as caught:
        job.run(spec_of(LOG, {"event": "error", "cause": "the wheel is damaged", "remedy": "fetch it"}))
    assert caught.value.remedy == "fetch it" and not caught.value.everywhere
    assert units.left() == []


def test_that_a_like_box_would_fail_too_is_passed_on(units: Systemd) -> None:
    with pytest.raises(Failure, match="no such thing") as caught:
        job.run(spec_of({"event": "error", "cause": "no such thing", "remedy": "mend it", "everywhere": True}))
    assert caught.value.everywhere


def test_a_job_that_was_killed_says_so(units: Systemd) -> None:
    units.ended = "failed"
    with pytest.raises(Failure, match="runtime did not end: it was ended by signal 9") as caught:
        job.run(spec_of(LOG, "die"))
    assert "journalctl -u gpufleet-job-" in caught.value.remedy
    assert units.left() == [] and units.forgotten


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"Result": "oom-kill"}, "ran out of memory"),
        ({"Result": "signal", "ExecMainStatus": "15"}, "signal 15"),
        ({"Result": "success"}, "stopped"),
        ({"Result": "exit-code", "ExecMainStatus": "1"}, "its program ended with status 1"),
        ({"Result": "timeout"}, "timeout"),
        ({}, "its unit is gone"),
    ],
)
def test_how_a_unit_ended(state: dict[str, str], words: str) -> None:
    with pytest.raises(Failure, match=words):
        job.outcome({}, "runtime", "gpufleet-job-x.service", state)


def test_a_second_call_attaches_and_hears_all(
    units: Systemd, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(events, "log", told.append)
    until = units.root / "go"
    spec = spec_of(LOG, "wait", PROGRESS, RESULT, until=str(until))
    answers: list[dict[str, Any]] = []
    first = threading.Thread(target=lambda: answers.append(job.run(spec)))
    first.start()
    wait_for(lambda: units.calls and units.left())
    second = threading.Thread(target=lambda: answers.append(job.run(spec)))
    second.start()
    wait_for(lambda: told == ["runtime is running already: following it"])
    until.write_text("")
    first.join(30), second.join(30)
    assert answers == [{"path": "/there"}] * 2
    assert len(units.calls) == 1 and units.left() == []
    said = capsys.readouterr().out.splitlines()
    assert said.count(json.dumps(LOG)) == 2 and said.count(json.dumps(PROGRESS)) == 2


def test_another_spec_is_another_job(units: Systemd) -> None:
    job.run(spec_of(RESULT))
    job.run(spec_of(RESULT, more=1))
    names = [word for call in units.calls for word in call.split() if word.startswith("--unit=")]
    assert len(set(names)) == 2


def test_when_the_caller_is_gone_the_job_goes_on_and_the_next_call_attaches(units: Systemd) -> None:
    """The connection breaks: the kit that follows is killed by its first write, or with its session."""
    until, done = units.root / "go", units.root / "done"
    spec = spec_of(LOG, "wait", RESULT, until=str(until))
    pid = os.fork()
    if pid == 0:  # the caller: its output goes nowhere
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, 1)
        sys.stdout = os.fdopen(1, "w")
        try:
            job.run(spec)
        finally:
            done.write_text("followed to the end")
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1 and not done.exists()
    (unit,) = [name for name in os.listdir(units.root) if name.startswith("gpufleet-job-")]
    assert units.show(unit)["active"] == "active"
    until.write_text("")
    assert job.run(spec) == {"path": "/there"}
    assert units.left() == []


def test_what_jobs_left_whose_callers_went_away_is_cleaned_by_the_next(units: Systemd) -> None:
    job.run(spec_of(RESULT))
    for name in ("0123456789abcdef.events", "0123456789abcdef.json"):
        (Path(job.JOBS) / name).write_text("secret")
    job.run(spec_of(RESULT, more=1))
    assert units.left() == []


def test_a_spec_is_in_no_command_line_and_only_for_root(units: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    original = shell.run

    def run(arguments: list[str], **more: Any) -> str:
        question = next(word for word in arguments if word.startswith("--property=StandardInput=file:"))
        modes.append(os.stat(question.split("file:")[1]).st_mode & 0o777)
        return original(arguments, **more)

    monkeypatch.setattr(shell, "run", run)
    until = units.root / "go"
    thread = threading.Thread(target=lambda: job.run(spec_of("wait", RESULT, until=str(until), token="s3cret")))
    thread.start()
    wait_for(lambda: any(name.startswith("gpufleet-job-") for name in os.listdir(units.root)))
    wait_for(lambda: [name.split(".")[1] for name in units.left()] == ["events"])  # read already, and gone
    until.write_text("")
    thread.join(30)
    assert modes == [0o600] and "s3cret" not in "".join(units.calls)
    assert os.stat(os.path.dirname(job.JOBS)).st_mode & 0o777 == 0o700


def test_only_verbs_that_take_long_are_jobs(units: Systemd) -> None:
    with pytest.raises(Failure, match="'probe' is no verb for a job"):
        job.run({"verb": "probe", "spec": {}})
    assert units.calls == []


def test_a_unit_that_cannot_start_is_an_error(units: Systemd) -> None:
    (units.root / "bin/systemd-run").write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2; exit 1\n")
    with pytest.raises(Failure, match=r"cannot start gpufleet-job-.*: Failed to connect to bus"):
        job.run(spec_of(RESULT))
    assert not [name for name in units.left() if name.endswith(".json")]


def test_the_same_work_of_another_run_is_the_same_job(units: Systemd) -> None:
    name = job.identity("activate", {"digest": "a", "run": "1"})
    assert name == job.identity("activate", {"digest": "a", "run": "2"})
    assert name != job.identity("activate", {"digest": "b", "run": "1"})
    assert name != job.identity("restart", {"digest": "a", "run": "1"})


@pytest.mark.parametrize("verb", ["activate", "rollback", "restart"])
def test_an_activation_that_is_killed_is_finished_by_the_box(units: Systemd, verb: str) -> None:
    with pytest.raises(Failure, match="ended by signal 9") as caught:
        job.run({**spec_of("die"), "verb": verb})
    assert "-u gpufleet-resume" in caught.value.remedy
    (call,) = units.calls
    assert "--property=OnFailure=gpufleet-resume.service" in call and "Nice" not in call
    assert "OnFailure" not in " ".join(job.PROPERTIES)


def test_a_removal_that_is_killed_is_called_again(units: Systemd) -> None:
    with pytest.raises(Failure, match="ended by signal 9") as caught:
        job.run({**spec_of("die"), "verb": "remove"})
    assert "call `gpufleet remove` again" in caught.value.remedy and "deploy" not in caught.value.remedy
    (call,) = units.calls
    assert "OnFailure" not in call and "Nice" not in call


@pytest.mark.parametrize(("instance", "left"), [(None, False), ("tiny", True)])
def test_when_gpufleet_is_off_the_box_what_jobs_said_is_gone_too(
    units: Systemd, instance: str | None, left: bool
) -> None:
    assert job.run({**spec_of(RESULT, instance=instance), "verb": "remove"}) == {"path": "/there"}
    assert Path(job.JOBS).parent.exists() == left
