"""The lock of the fleet on one box: taken, renewed, released and broken by the right ones, free when it is over."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gpufleet.instance_facts import Lock
from hostkit import files, lock, probe, state
from hostkit.errors import Failure
from hostkit.roots import Roots

HOLDER = {"who": "anna", "host": "desk", "pid": 7, "run": "r1", "what": "deploy of home.py"}


@pytest.fixture(autouse=True)
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "STATE", str(tmp_path))
    monkeypatch.setattr(state, "JOURNAL", str(tmp_path / "journal.jsonl"))
    monkeypatch.setattr(lock, "PATH", str(tmp_path / "lock.json"))
    monkeypatch.setattr(lock, "GUARD", str(tmp_path / "guard"))
    return tmp_path


def ask(action: str, mine: str | None = "me", seconds: float = 600) -> dict[str, Any]:
    return lock.run({"action": action, "id": mine, "holder": HOLDER, "seconds": seconds})


def events(box: Path) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in (box / "journal.jsonl").read_text().splitlines()]
    return [(line["event"], line.get("how", "")) for line in lines]


def test_it_is_taken_once_and_says_who_has_it(box: Path) -> None:
    mine = ask("take")
    assert mine["held"] and {key: mine["lock"][key] for key in HOLDER} == HOLDER
    other = ask("take", "other")
    assert not other["held"] and other["lock"] == mine["lock"]
    assert ask("take")["held"]  # its own, once more: the connection broke before the answer
    assert lock.read(Roots()) == Lock.model_validate(lock.read(Roots())).model_dump()
    assert events(box) == [("locked", "")]


def test_only_its_holder_renews_and_releases_it(box: Path) -> None:
    since = ask("take", seconds=60)["lock"]
    for action in ("renew", "release", "break"):
        assert not ask(action, "other")["held"] and lock.read(Roots()) == since
    renewed = ask("renew", seconds=6000)["lock"]
    assert lock.read(Roots()) == renewed and renewed["until"] > since["until"] and renewed["since"] == since["since"]
    assert ask("release") == {"held": False, "lock": None, "broken": None} and lock.read(Roots()) is None
    assert not ask("renew")["held"] and lock.read(Roots()) is None
    assert ask("take", "other")["held"]
    assert events(box) == [("locked", ""), ("unlocked", "released"), ("locked", "")]


@pytest.mark.parametrize("name", ["me", None])
def test_it_is_broken_by_name_or_whoever_has_it(box: Path, name: str | None) -> None:
    taken = ask("take")["lock"]
    assert ask("break", name) == {"held": False, "lock": None, "broken": taken}
    assert ask("break", name) == {"held": False, "lock": None, "broken": None}
    assert events(box)[-1] == ("unlocked", "broken")


def test_one_whose_lease_is_over_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    ask("take", seconds=600)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 601)
    assert lock.read(Roots()) is None
    assert not ask("renew")["held"]
    assert ask("take", "other")["lock"]["id"] == "other"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"id": "x"}', "\0" * 40])
def test_a_damaged_file_is_no_lock(box: Path, text: str) -> None:
    (box / "lock.json").write_text(text)
    assert lock.read(Roots()) is None and ask("take")["held"]


def test_an_unknown_action_is_a_failure() -> None:
    with pytest.raises(Failure, match="'steal'"):
        ask("steal")


def test_the_probe_tells_of_it(tmp_path: Path) -> None:
    assert probe.run({}, Roots(str(tmp_path / "empty"), {}))["facts"]["lock"] is None
