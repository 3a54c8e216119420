"""Each step of an activation is on the disk, in the state and in the journal, before it is begun.

A process that is killed does not show that: what it wrote is in the kernel. So the calls themselves are looked at.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hostkit import activation, state
from hostkit.errors import Failure
from tests.unit.activation_box import Machine, make


class Disk:
    """What would still be there after a power cut: files whose content was synced, by names that were synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.content: dict[str, bytes] = {}  # by the name a file was synced under
        self.renamed: dict[str, bytes] = {}  # the directory's entry is not on the disk yet
        self.fsync, self.replace = os.fsync, os.replace
        monkeypatch.setattr(os, "fsync", self.synced)
        monkeypatch.setattr(os, "replace", self.moved)

    def synced(self, descriptor: int) -> None:
        self.fsync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            for name in [name for name in self.renamed if os.path.dirname(name) == path]:
                self.content[name] = self.renamed.pop(name)
        else:
            self.content[path] = Path(path).read_bytes()

    def moved(self, source: str, target: str) -> None:
        if not os.path.islink(source):
            assert self.content.pop(source) == Path(source).read_bytes(), f"{target} is replaced by what is not synced"
            self.renamed[target] = Path(source).read_bytes()
        self.replace(source, target)

    def step(self) -> str | None:
        """The step that a boot would find."""
        found = json.loads(self.content.get(state.STATE, b"{}") or b"{}").get("instances", {}).get("tiny", {})
        step: str | None = (found.get("activation") or {}).get("step")
        return step

    def journal(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.content.get(state.JOURNAL, b"").splitlines()]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return make(tmp_path, monkeypatch)


@pytest.fixture
def seen(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None, str | None]]:
    """(what was done, step in the state, step in the journal) as on the disk at that moment."""
    disk, done = Disk(monkeypatch), []

    def note(what: str) -> None:
        steps = [line["step"] for line in disk.journal() if line["event"] == "activation"]
        done.append((what, disk.step(), steps[-1] if steps else None))

    def noted(module: Any, name: str, what: str) -> None:
        original = getattr(module, name)

        def call(*arguments: Any, **more: Any) -> Any:
            note(arguments[0] if name == "systemctl" else what)
            return original(*arguments, **more)

        monkeypatch.setattr(module, name, call)

    noted(activation.systemd, "systemctl", "")
    noted(activation.warm, "run", "warm")
    noted(activation.vram_check, "check", "check")
    noted(activation.gate, "run", "gate")
    return done


def test_each_step_is_on_the_disk_before_it_is_begun(
    machine: Machine,
    seen: list[tuple[str, str | None, str | None]],
) -> None:
    machine.activate(machine.stage("a: 1"))
    new = machine.stage("a: 2")
    seen.clear()
    machine.activate(new)
    forward = [item for item in seen if item[0] != "reset-failed"]
    assert forward == [
        ("warm", "warming", "warming"),
        ("check", "checking", "checking"),
        ("stop", "stopping", "stopping"),
        ("enable", "switching", "switching"),
        ("daemon-reload", "switching", "switching"),
        ("restart", "starting", "starting"),
        ("gate", "gating", "gating"),
    ]


def test_so_is_each_step_back(
    machine: Machine,
    seen: list[tuple[str, str | None, str | None]],
) -> None:
    machine.activate(machine.stage("a: 1"))
    bad = machine.stage("a: 2")
    machine.gate_fails.add(bad)
    seen.clear()
    with pytest.raises(Failure):
        machine.activate(bad)
    steps = [item for item in seen if item[0] != "reset-failed"]
    assert steps[7:] == [
        ("enable", "putting-back", "putting-back"),
        ("daemon-reload", "putting-back", "putting-back"),
        ("restart", "putting-back", "putting-back"),
        ("gate", "gating-back", "gating-back"),
    ]


def test_the_end_is_in_the_state_before_the_journal_and_nothing_is_left_under_way(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk(monkeypatch)
    told: list[tuple[str | None, str]] = []
    write = state.journal

    def journal(event: str, **fields: Any) -> None:
        told.append((disk.step(), event))
        write(event, **fields)
        assert disk.journal()[-1]["event"] == event

    monkeypatch.setattr(state, "journal", journal)
    digest = machine.stage("a: 1")
    machine.activate(digest)
    assert told[-1] == ("committing", "activated")
    after = json.loads(disk.content[state.STATE])["instances"]["tiny"]
    assert (after["activation"], after["gated"]) == (None, digest)
