"""Many verbs by one process of the kit: each is answered as if it had a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufleet import kit
from hostkit import questions
from operations import kit_scripts

# Verbs for these tests, in the kit's place; what `answer` does with exceptions is tried with the kit itself.
STANDIN = """
import os, signal, sys, time
from hostkit import events, questions
seen = []
def answer(verb, question):
    spec = question()
    if verb == "remember":
        seen.append(spec["word"])
        before = os.umask(spec["umask"])
        events.result({"seen": seen, "umask": before, "stdin": sys.stdin.buffer.read().decode()})
        return 0
    if verb == "say":
        sys.stdout.write("in the middle" if spec.get("dies") else "of it")
        sys.stderr.write(spec.get("error", ""))
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL) if spec.get("dies") else None
    if verb == "exit":
        sys.exit("that was bad")
    if verb == "sleep":
        time.sleep(2)
        events.result({})
        return 0
    if verb == "leave":
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        events.result({})
        return 0
    return 3
sys.exit(questions.run(answer))
"""


class Process:
    """A process that is asked."""

    def __init__(self, command: list[str]) -> None:
        self.running = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        assert self.running.stdout
        assert self.running.stdout.readline() == b'{"event": "ready"}\n'

    def ask(self, verb: str, spec: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
        """(what it said, the event `end`)"""
        assert self.running.stdin and self.running.stdout
        self.running.stdin.write(json.dumps({"verb": verb, "spec": spec}).encode() + b"\n")
        lines = []
        for line in iter(self.running.stdout.readline, b""):
            if line.startswith(b'{"event": "end"'):
                return lines, json.loads(line)
            lines += [line.decode().rstrip("\n")] if line != b"\n" else []
        raise AssertionError(lines)

    def end(self) -> int:
        assert self.running.stdin and self.running.stdout and self.running.stderr
        self.running.stdin.close()
        status = self.running.wait(10)
        self.running.stdout.close()
        self.running.stderr.close()
        return status


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[Process]:
    process = started(tmp_path)
    yield process
    assert process.end() == 0


def started(folder: Path, seconds: int = 3600) -> Process:
    file = folder / "kit.py"
    file.write_text(STANDIN.replace("seen = []", f"seen, questions.IDLE_SECONDS = [], {seconds}"))
    return Process([sys.executable, str(file)])


def test_nothing_stays_of_one_for_the_next(standin: Process) -> None:
    for word in ("one", "two"):
        (line,), end = standin.ask("remember", {"word": word, "umask": 0o77})
        found = json.loads(line)
        assert found == {"event": "result", "seen": [word], "umask": found["umask"], "stdin": ""}
        assert found["umask"] != 0o77 and end == {"event": "end", "status": 0, "said": ""}


def test_the_end_of_one_is_not_that_of_the_others(standin: Process) -> None:
    lines, end = standin.ask("say", {"dies": True, "error": "no memory"})
    assert (lines, end) == (["in the middle"], {"event": "end", "status": 128 + signal.SIGKILL, "said": "no memory"})
    lines, end = standin.ask("exit", {})
    assert (lines, end["status"]) == ([], 1) and end["said"].rstrip().endswith("SystemExit: that was bad")
    lines, end = standin.ask("say", {"error": "x" * 10_000})
    assert (lines, end) == (["of it"], {"event": "end", "status": 3, "said": "x" * 4096})


def test_what_a_verb_leaves_running_holds_up_nothing(standin: Process) -> None:
    (line,), end = standin.ask("leave", {})
    assert (json.loads(line), end["status"]) == ({"event": "result"}, 0)
    children = Path(f"/proc/{standin.running.pid}/task/{standin.running.pid}/children").read_text()
    assert children == "", "the verb itself has ended"


def test_the_kit_itself(tmp_path: Path) -> None:
    file = tmp_path / kit.build().name
    file.write_bytes(kit.build().data)
    process = Process(["sh", "-c", kit_scripts.call(str(tmp_path), kit.build(), "questions")])
    for _ in range(2):
        lines, end = process.ask("probe", {})
        assert json.loads(lines[-1])["facts"]["schema"] == 2 and end["status"] == 0
    (line,), end = process.ask("job", {"verb": "nonsense"})
    assert "is no verb for a job" in json.loads(line)["cause"] and end["status"] == 1
    (line,), end = process.ask("job", {})
    assert "KeyError('verb')" in json.loads(line)["cause"] and end["status"] == 1
    (line,), end = process.ask("no-such", {})
    assert json.loads(line)["event"] == "error" and end["status"] == 1
    assert process.end() == 0


def test_it_ends_when_nobody_asks_any_more_and_not_before(tmp_path: Path) -> None:
    process = started(tmp_path, seconds=1)
    (line,), end = process.ask("sleep", {})
    assert (json.loads(line), end["status"]) == ({"event": "result"}, 0), "a verb may take longer than that"
    assert process.running.wait(20) == -signal.SIGALRM
    process.end()


@pytest.mark.parametrize("happens", ["removed", "put anew", "touched"])
def test_it_answers_nothing_once_the_kit_is_another(tmp_path: Path, happens: str) -> None:
    """What removes gpufleet from the box relies on that; of Python's own files it is told alike."""
    process, file = started(tmp_path), tmp_path / "kit.py"
    assert process.ask("remember", {"word": "a", "umask": 0o22})[1]["status"] == 0
    if happens == "removed":
        file.unlink()
    elif happens == "put anew":
        (tmp_path / "aside").write_text(file.read_text())
        (tmp_path / "aside").replace(file)
    else:
        os.utime(file, (1, 1))
    assert process.running.stdin and process.running.stdout
    process.running.stdin.write(b'{"verb": "remember", "spec": {"word": "b", "umask": 18}}\n')
    assert process.running.stdout.read() == b'{"event": "again"}\n'
    assert process.end() == 0


def test_an_upgrade_of_python_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit_file, python, library = tmp_path / "kit", tmp_path / "python3", tmp_path / "os.py"
    for file in (kit_file, python, library):
        file.write_text("")
    monkeypatch.setattr("sys.argv", [str(kit_file)])
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setattr(os, "__file__", str(library))
    before = questions._made_of()
    assert questions._made_of() == before
    for file in (python, library):
        os.utime(file, (1, 1))
        assert questions._made_of() != before
        before = questions._made_of()
