"""The page cache before a stop: which files are read, and no more of them than memory is free for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hostkit import warm
from hostkit.roots import Roots
from tests.unit.boxes import put

GIB = 1 << 30


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(warm, "Roots", lambda: Roots(str(tmp_path)))
    monkeypatch.setattr(warm, "BLOCK", 4)
    for name in ("lib/a.so", "lib/b.so.12", "lib/c.py", "lib/d.solution"):
        put(tmp_path, "/runtime/" + name, "12345")
    put(tmp_path, "/model/config.json", "12345")
    put(tmp_path, "/model/model.safetensors", "1" * 20)
    put(tmp_path, "/model/model-mtp.safetensors.original", "of a replaced MTP head")
    return tmp_path


def memory(box: Path, available: int, total: int = 8 * GIB) -> None:
    put(box, "/proc/meminfo", f"MemTotal: {total >> 10} kB\nMemAvailable: {available >> 10} kB\n")


def read(box: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    opened: list[str] = []
    original = open

    def noted(path: str, *arguments: object, **more: object) -> object:
        if str(path).startswith((str(box / "runtime"), str(box / "model"))):
            opened.append(Path(path).name)
        return original(path, *arguments, **more)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", noted)
    warnings = warm.run([str(box / "runtime"), str(box / "model")], str(box / "runtime"))
    return opened, warnings


def test_shared_objects_of_the_runtime_and_all_of_the_model(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory(box, 7 * GIB)
    assert read(box, monkeypatch) == (["a.so", "b.so.12", "config.json", "model.safetensors"], [])


def test_no_more_than_is_available_but_for_what_others_may_need(box: Path) -> None:
    memory(box, 7 * GIB)
    assert warm.room() == 5 * GIB
    memory(box, 63 * GIB, 64 * GIB)
    assert warm.room() == 63 * GIB - int(64 * GIB * warm.SPARE_SHARE)
    memory(box, GIB)
    assert warm.room() == 0


def test_what_has_no_room_is_left_and_said(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "room", lambda: 17)
    found = [item for name in ("runtime", "model") for item in warm.of_folder(str(box / name), name == "runtime")]
    assert warm.read(found, 17) == 17
    (said,) = read(box, monkeypatch)[1]
    assert "more memory is not free" in said


def test_a_line_of_progress_now_and_then(
    box: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory(box, 7 * GIB)
    monkeypatch.setattr(warm, "TOLD_SECONDS", -1)
    read(box, monkeypatch)
    lines = [json.loads(line)["message"] for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith("reading into the page cache: 0.0 of")


def test_what_cannot_be_read_is_left_to_the_engine(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory(box, 7 * GIB)
    (box / "model/model.safetensors").unlink()
    (box / "model/model.safetensors").symlink_to("nowhere")
    assert read(box, monkeypatch) == (["a.so", "b.so.12", "config.json"], [])
    assert warm.run([str(box / "nothing")], "") == []
