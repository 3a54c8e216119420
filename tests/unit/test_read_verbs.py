"""The kit's verbs that read what is on the box: releases, journal, follow."""

from __future__ import annotations

import importlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hostkit import __main__ as kit
from hostkit import follow, journal, releases, shell, unit_log
from hostkit.errors import Failure
from hostkit.roots import Roots
from tests.unit.boxes import FakeBox
from tests.unit.test_probe_instances import Box

UNIT = "gpufleet-qwen.service"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBox:
    return FakeBox(tmp_path, monkeypatch)


# releases


def test_releases_are_told_with_their_files_as_they_are_now(tmp_path: Path) -> None:
    made = Box(tmp_path)
    (made.release / "env/qwen.env").write_text("A=2\n")
    (made.release / "runtime").symlink_to("/opt/gpufleet/runtimes/engine-1")
    (made.home / "releases" / ".building").mkdir()
    found = releases.texts(Roots(str(tmp_path)), "qwen")
    assert found["current"] == made.digest and found["gated"] is None
    assert found["unit"] == "[Service]\nExecStart=/x\n"
    assert set(found["releases"]) == {made.digest, made.older}
    files = found["releases"][made.digest]["files"]
    assert files["env/qwen.env"] == "A=2\n" and set(files) == {UNIT, "env/qwen.env", "manifest.json"}
    assert found["releases"][made.older]["at"].endswith("Z")


def test_releases_of_an_instance_that_is_not_there(tmp_path: Path) -> None:
    found = releases.texts(Roots(str(tmp_path)), "nobody")
    assert found == {"current": None, "gated": None, "unit": None, "releases": {}}


def test_a_file_that_is_no_text_is_told_all_the_same(tmp_path: Path) -> None:
    made = Box(tmp_path)
    (made.release / "serve.yaml").write_bytes(b"a: \xff\n")
    files = releases.texts(Roots(str(tmp_path)), "qwen")["releases"][made.digest]["files"]
    assert files["serve.yaml"] == "a: \ufffd\n"


# journal


def write_journal(box: FakeBox, *lines: str) -> None:
    (box.root / "state").mkdir(exist_ok=True)
    (box.root / "state/journal.jsonl").write_text("\n".join(lines))


def test_the_last_events_oldest_first(box: FakeBox) -> None:
    events = [json.dumps({"event": "activated", "instance": "ab"[number % 2], "n": number}) for number in range(9)]
    write_journal(box, *events, '{"event": "acti')
    assert [event["n"] for event in journal.run({"lines": 3})["events"]] == [6, 7, 8]
    assert [event["n"] for event in journal.run({"lines": 2, "instance": "b", "log": 0})["events"]] == [5, 7]
    assert journal.run({"lines": 0})["events"] == []
    assert len(journal.run({"lines": 100})["events"]) == 9


def test_a_box_without_a_journal_has_no_events(box: FakeBox) -> None:
    assert journal.run({"lines": 5}) == {"events": [], "log": []}


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 16])
def test_a_journal_is_read_backwards_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(journal, "BLOCK", block)
    path = tmp_path / "journal.jsonl"
    path.write_text("first\n\nsecond line\nthird\n")
    assert list(journal.backwards(str(path))) == [b"third", b"second line", b"first"]
    path.write_text("only")
    assert list(journal.backwards(str(path))) == [b"only"]
    path.write_text("")
    assert list(journal.backwards(str(path))) == []


# logs


def entry(text: Any, unit: str = "gpufleet-tiny.service", key: str = "_SYSTEMD_UNIT") -> str:
    return json.dumps({"__REALTIME_TIMESTAMP": "1764438000000000", key: unit, "MESSAGE": text})


def test_the_log_of_a_service(box: FakeBox, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(arguments: list[str], **_: Any) -> str:
        asked.append(arguments)
        return "\n".join([entry("one"), "no JSON", entry("Started it.", key="UNIT"), entry([116, 119, 255])])

    monkeypatch.setattr(shell, "run", run)
    log = journal.run({"lines": 0, "instance": "tiny", "log": 7})["log"]
    assert log == [f"2025-11-29T17:40:00Z {text}" for text in ("one", "Started it.", "tw\ufffd")]
    assert asked[0][-2:] == ["--unit", "gpufleet-tiny.service"] and "--lines=7" in asked[0]


def test_lines_of_several_services_name_theirs() -> None:
    assert unit_log.line(entry("one"), True) == "2025-11-29T17:40:00Z tiny one"
    assert unit_log.line(entry("x" * 9000), False) == "2025-11-29T17:40:00Z " + "x" * unit_log.LINE
    assert unit_log.line(json.dumps({"MESSAGE": None}), False) == "- "


def test_a_journal_that_cannot_be_read_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(arguments: list[str], **_: Any) -> str:
        raise shell.Ended(arguments, 1, "Failed to open files")

    monkeypatch.setattr(shell, "run", run)
    with pytest.raises(Failure, match="Failed to open files"):
        unit_log.last(["tiny"], 3)


@pytest.fixture
def printing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The program that stands in for journalctl: it prints two entries, then what the test adds to the list does."""
    program = [f"print({entry('one')!r}); print({entry('two')!r}, flush=True)"]
    monkeypatch.setattr(unit_log, "command", lambda *_: [sys.executable, "-c", "\n".join(program)])
    return program


def test_following_says_each_line(printing: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert follow.run({"instances": ["tiny"], "lines": 2}) == {"followed": ["tiny"]}
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["message"] for event in said if event["event"] == "log"] == [
        "2025-11-29T17:40:00Z one",
        "2025-11-29T17:40:00Z two",
    ]


def test_following_ends_when_the_reader_has_gone(printing: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    printing.append("import time; time.sleep(600)")  # a silent service: only the beat can find out
    monkeypatch.setattr(follow, "BEAT_SECONDS", 0.01)

    class Gone(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    assert follow.run({"instances": ["tiny"]}) == {"followed": ["tiny"]}


@pytest.mark.parametrize("verb", ["releases", "journal", "follow", "health"])
def test_reading_waits_for_no_lock(verb: str) -> None:
    assert verb in kit.UNLOCKED
    assert callable(importlib.import_module(f"hostkit.{verb}").run)
