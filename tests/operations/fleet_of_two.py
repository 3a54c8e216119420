"""Two boxes that answer commands as a test says, in place of operations.errands.Boxes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpufleet.cli import main
from gpufleet.errors import BoxError
from tests.command import owners_folder
from tests.unit.fleets import cpu_facts

INVENTORY = """\
from gpufleet.inventory import by_traits
idle = {"stack": "vllm-0.27.1-cpu", "serve": [], "host": {"toolkit": "none"}}
boxes = [(name, {"ssh_hostname": f"192.0.2.{len(name)}", **idle}) for name in ("one", "second")]
globals().update(by_traits(boxes))
"""
NOW, BEFORE = "2026-11-29T17:40:00Z", "2026-11-29T12:30:00Z"
NEW, OLD = "aaaa000000000000", "bbbb000000000000"


def instance(**more: Any) -> dict[str, Any]:
    """An instance that serves NEW, and keeps OLD."""
    service = {"active": "active", "sub": "running", "enabled": True, "pid": 7, "restarts": 0, "since": BEFORE}
    found = {"current": NEW, "releases": [NEW, OLD], "drift": [], "gated": NEW, "stale": False, "port": 8000}
    return {**found, "service": service, "activation": None, "held": None, "history": [], **more}


class Boxes:
    """`one` has two instances, `second` one; `answers` by verb are functions of (box, spec), or what is answered."""

    def __init__(self) -> None:
        self.facts: dict[str, dict[str, Any]] = {
            "one": cpu_facts(at=NOW, instances={"qwen": instance(), "ornith": instance()}),
            "second": cpu_facts(at=NOW, instances={"qwen": instance()}),
        }
        self.all = self.facts
        self.failures: dict[str, BoxError] = {}
        self.answers: dict[str, Any] = {}
        self.called: list[tuple[str, str, dict[str, Any]]] = []
        self.looks = 0
        self.locked: list[str] = []
        self.unlocked = self.gone = 0
        self.hosts: dict[str, None] = {}
        self.options: dict[str, Any] = {}
        self.on_look: Callable[[], None] = lambda: None

    def __call__(self, fleet: Any, names: list[str], **options: Any) -> Boxes:
        self.options, self.hosts = options, dict.fromkeys(names)
        self.facts = {name: self.all[name] for name in names if name not in self.failures}
        return self

    def look(self) -> dict[str, dict[str, Any]]:
        self.looks += 1
        self.on_look()
        return self.facts

    def lock(self, box: str, folder: Path, what: str) -> dict[str, Any] | None:
        self.locked.append(what)
        held = self.facts[box].get("lock")
        return held if held and held["until"] > NOW else None

    def unlock(self, gone: bool = False) -> None:
        if gone:
            self.gone += 1
        else:
            self.unlocked += 1

    def call(
        self, verb: str, specs: Mapping[str, Any], say: Callable[[str, str], None] | None = None
    ) -> dict[str, dict[str, Any]]:
        found = {}
        for box, spec in specs.items():
            if box in self.failures:
                continue
            self.called.append((verb, box, spec))
            answer = self.answers[verb]
            try:
                found[box] = answer(box, spec, say) if callable(answer) else answer
            except BoxError as error:
                self.failures[box] = error
        return found


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Boxes:
    """The boxes, and an owner's folder to call commands in."""
    found = Boxes()
    monkeypatch.setitem(sys.modules, "operations.errands", SimpleNamespace(Boxes=found))  # type: ignore[arg-type]
    monkeypatch.chdir(owners_folder(tmp_path, INVENTORY))
    return found


def gpufleet(command: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, [command, "inventory/home.py", *arguments])
