"""A box made of a few directories, for tests of the kit's verbs."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest

from hostkit import files, gate, listeners, model, release, resume_unit, runtime, state, store, systemd
from hostkit.errors import Failure
from hostkit.guard import Tell


class FakeBox:
    """The kit's tree below a temporary directory, and a systemd that notes what it is asked."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.asked: list[str] = []
        self.active = "inactive"
        self.gate_fails: set[str] = set()
        self.ports: dict[str, Any] = {}
        for module, name, value in (
            (files, "STATE", "state"),
            (files, "UNITS", "units"),
            (state, "STATE", "state/state.json"),
            (state, "JOURNAL", "state/journal.jsonl"),
            (release, "INSTANCES", "instances"),
            (model, "MODELS", "models"),
            (store, "MODELS_ROOT", "models/.store"),
            (runtime, "RUNTIMES", "runtimes"),
            (resume_unit, "KIT", "kit/gpufleet-kit.pyz"),
        ):
            monkeypatch.setattr(module, name, str(root / value))
        (root / "units").mkdir()
        monkeypatch.setattr(release, "ensure_user", lambda: None)
        monkeypatch.setattr(systemd, "show", self._show)
        monkeypatch.setattr(systemd, "systemctl", self._systemctl)
        monkeypatch.setattr(gate, "run", self._gate)
        monkeypatch.setattr(gate, "wait", lambda *_: None)
        monkeypatch.setattr(listeners, "read", lambda roots: {"ports": self.ports})

    def _show(self, unit: str) -> dict[str, Any]:
        return {"active": self.active, "sub": "", "pid": 1}

    def _systemctl(self, *arguments: str, allowed: bool = False) -> str:
        self.asked.append(arguments[0])
        if arguments[0] in ("restart", "stop"):
            self.active = "active" if arguments[0] == "restart" else "inactive"
        return ""

    def _gate(
        self,
        unit: str,
        port: int,
        wanted: dict[str, Any],
        began: float,
        old: int | None,
        history: Any = (),
    ) -> dict[str, Any]:
        digest = self.current("tiny")
        if digest in self.gate_fails:
            raise Failure("the answer is wrong", "look at it")
        return {"completion": "42", "drafts": 1}

    def current(self, name: str) -> str | None:
        link = self.root / "instances" / name / "current"
        return Path(os.readlink(link)).name if link.is_symlink() else None

    def complete(self) -> dict[str, str]:
        """A runtime and a model that are whole, as `activate` wants them."""
        for name in ("runtimes/engine-1", "models/tiny/r1"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
            (self.root / name / files.COMPLETE).write_text("{}")
        return {"runtime": str(self.root / "runtimes/engine-1"), "model": str(self.root / "models/tiny/r1")}


class Told(Tell):
    """For a source read outside of a child: takes down what it tells before it has read all, and each step."""

    def __init__(self, known: list[dict[str, Any]] | None = None) -> None:
        self._known = [] if known is None else known
        self.steps: list[str] = []

    def known(self, facts: dict[str, Any]) -> None:
        self._known.append(copy.deepcopy(facts))

    def doing(self, what: str) -> None:
        self.steps.append(what)


def put(box: Path, path: str, text: str) -> None:
    """A file of a box that is made of a few files."""
    target = box / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
