"""A box whose activations can be stopped at any moment: units whose state outlives the process, moments counted."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostkit import activate, gate, listeners, release, resume_unit, state, systemd
from hostkit.errors import Failure
from tests.unit.boxes import FakeBox

STOPPED, FAILED = 77, 1


class Machine(FakeBox):
    """Each unit's state lies in a file, as systemd's outlives whoever asks it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        self.left: int | None = None  # moments until the process is stopped
        self.moments = 0
        monkeypatch.setattr(state, "reached", self.moment)
        self.gated_by: list[Any] = []
        monkeypatch.setattr(listeners, "read", lambda roots: {"ports": {**self.ports, **self._owners()}})

    def moment(self, name: str) -> None:
        self.moments += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                os._exit(STOPPED)

    # -- units

    @property
    def units(self) -> dict[str, Any]:
        """{unit: {"runs": digest that it was started on, or None, "enabled": bool, "owner": port of the owner's}}"""
        path = self.root / "systemd.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def put(self, unit: str, **fields: Any) -> None:
        units = self.units
        units.setdefault(unit, {"runs": None, "enabled": False}).update(fields)
        (self.root / "systemd.json").write_text(json.dumps(units))

    def _show(self, unit: str) -> dict[str, Any]:
        runs = self.units.get(unit, {}).get("runs")
        return {"active": "active" if runs else "inactive", "sub": "", "pid": 1 if runs else None, "job": False}

    def _systemctl(self, *arguments: str, allowed: bool = False) -> str:
        self.moment("before systemctl")
        verb, unit = arguments[0], arguments[-1]
        if verb == "show":
            return self._shown(unit)
        if verb in ("restart", "start"):
            self.start(unit)
        elif verb == "stop":
            self.put(unit, runs=None)
        elif verb in ("enable", "disable"):
            self.put(unit, enabled=verb == "enable")
            wants = self.root / "units/multi-user.target.wants"
            wants.mkdir(exist_ok=True)
            (wants / unit).unlink(missing_ok=True)
            if verb == "enable":
                (wants / unit).symlink_to(self.root / "units" / unit)
        self.moment("after systemctl")
        return ""

    def owners(self, unit: str, port: int, **more: Any) -> None:
        """A unit that somebody wrote by hand, which runs and is enabled."""
        self.put(unit, **{"runs": "as ever", "enabled": True, "owner": port, **more})

    def _owners(self) -> dict[str, Any]:
        found = ((unit, each) for unit, each in self.units.items() if each.get("owner") and each["runs"])
        return {str(each["owner"]): {"pid": 9, "command": "vllm", "unit": unit} for unit, each in found}

    def _shown(self, unit: str) -> str:
        known = self.units.get(unit)
        if known is None:
            return f"Id={unit}\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n"
        state, enabled = ("active" if known["runs"] else "inactive"), ("enabled" if known["enabled"] else "disabled")
        shown = f"Id={unit}\nLoadState=loaded\nActiveState={state}\nNRestarts=0\n"
        if known.get("script"):  # of init.d
            targets = "graphical.target multi-user.target" if known["enabled"] else ""
            return f"{shown}UnitFileState=generated\nSourcePath=/etc/init.d/llm\nWantedBy={targets}\n"
        return f"{shown}UnitFileState={enabled}\n"

    def start(self, unit: str) -> None:
        if self.units.get(unit, {}).get("owner"):
            self.put(unit, runs="as ever")
            return
        current = self.current(unit.removeprefix("gpufleet-").removesuffix(".service"))
        there = current and (self.root / "units" / unit).exists()
        self.put(unit, runs=current if there else None)

    def power_cut(self) -> None:
        """Nothing runs; what is enabled is started by the boot."""
        for unit, found in self.units.items():
            self.put(unit, runs=None)
            if found["enabled"] and unit != resume_unit.NAME:
                self.start(unit)

    def runs(self, name: str) -> str | None:
        found: str | None = self.units.get(f"gpufleet-{name}.service", {}).get("runs")
        return found

    # -- releases

    def _gate(
        self, unit: str, port: int, wanted: dict[str, Any], began: float, old: int | None, history: Any = ()
    ) -> dict[str, Any]:
        self.moment("gate")
        self.gated_by.append(wanted)
        digest = self.units.get(unit, {}).get("runs")
        if digest is None or digest in self.gate_fails:
            raise Failure("the answer is wrong", "look at it")
        return {"completion": "42", "drafts": 1, "tokens_per_second": 10.0, "warnings": []}

    def stage(self, text: str, name: str = "tiny") -> str:
        made = {"serve.yaml": text, f"gpufleet-{name}.service": f"[Unit]\n# {text}\n"}
        manifest = json.dumps({"files": {key: hashlib.sha256(made[key].encode()).hexdigest() for key in made}})
        digest = hashlib.sha256(manifest.encode()).hexdigest()[:16]
        release.run({"instance": name, "digest": digest, "files": {**made, "manifest.json": manifest}})
        return digest

    def spec(
        self, digest: str, name: str = "tiny", leaving: list[str] | None = None, replaces: list[str] | None = None
    ) -> dict[str, Any]:
        spec = {"instance": name, "digest": digest, "port": 8000, "gate": {"question of": digest}, "run": "r1"}
        others = {"instead_of": leaving or [], "replaces": replaces or []}
        return {**spec, **others, "gpus": [], "warm": [], **self.complete()}

    def activate(
        self, digest: str, name: str = "tiny", leaving: list[str] | None = None, replaces: list[str] | None = None
    ) -> dict[str, Any]:
        return activate.run(self.spec(digest, name, leaving, replaces))

    def journal(self) -> list[dict[str, Any]]:
        path = self.root / "state/journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def events(self, *wanted: str) -> list[str]:
        return [line["event"] for line in self.journal() if not wanted or line["event"] in wanted]

    # -- stopping

    def stopped_at(self, moment: int, action: Callable[[], Any]) -> bool:
        """Do `action` in a process that is gone at its moment of that number; False when it ended before."""
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            self.left = moment
            try:
                action()
            except Failure:
                os._exit(FAILED)
            except BaseException:
                traceback.print_exc()
                os._exit(3)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, FAILED, STOPPED), code
        return code == STOPPED


def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    root = tmp_path / "box"
    root.mkdir()
    found = Machine(root, monkeypatch)
    monkeypatch.setattr(systemd, "TRIES", 1)
    assert gate.run == found._gate
    return found
