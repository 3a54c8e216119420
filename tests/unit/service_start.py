"""The start of a service for tests: the folders of an instance, a clock, and an NVML."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostkit import after_stop, before_start, listeners, shell, vram

MIB = 1 << 20


class Cards:
    """NVML of cards with `free` MiB by UUID, and the processes on them: {uuid: [(pid, MiB)]}."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **free: int) -> None:
        self.free, self.processes = free, {uuid: [(4242, 9000)] for uuid in free}
        monkeypatch.setitem(sys.modules, "pynvml", self.module())
        monkeypatch.setattr(listeners, "command_of", lambda roots, pid: {4242: "python3"}[pid])
        monkeypatch.setattr(listeners, "unit_of", lambda roots, pid: {4242: "comfyui.service"}[pid])
        monkeypatch.setattr(vram, "owner", lambda pid, roots: {4242: "bob"}[pid])

    def module(self) -> Any:
        return SimpleNamespace(
            nvmlInit=lambda: None,
            nvmlMemory_v2=2,
            nvmlDeviceGetHandleByUUID=lambda uuid: uuid if uuid in self.free else 1 / 0,
            nvmlDeviceGetIndex=lambda uuid: list(self.free).index(uuid),
            nvmlDeviceGetMemoryInfo=lambda uuid, version: SimpleNamespace(
                total=22_528 * MIB, used=(22_528 - self.free[uuid]) * MIB, free=self.free[uuid] * MIB
            ),
            nvmlDeviceGetGraphicsRunningProcesses=lambda uuid: [],
            nvmlDeviceGetComputeRunningProcesses=lambda uuid: [
                SimpleNamespace(pid=pid, usedGpuMemory=None if mib is None else mib * MIB)
                for pid, mib in self.processes[uuid]
            ],
        )


class Service:
    """The folders of an instance, and a clock that only sleeping moves."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state, self.cache, self.now = root / "state", root / "cache/engine/tiny-r1", 1000.0
        self.state.mkdir()
        (root / "shm").mkdir()
        self.monkeypatch, self.slept = monkeypatch, [0]
        self.then: Callable[[], None] = lambda: None
        self.jobs = ""
        monkeypatch.setattr(before_start, "INSTANCES", str(root / "instances"))
        self.link = root / "instances/tiny/current"
        self.link.parent.mkdir(parents=True)
        self.release("a" * 16)
        monkeypatch.setattr(before_start, "SHM", str(root / "shm"))
        monkeypatch.setattr(before_start.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(before_start.time, "sleep", self.sleep)
        monkeypatch.setattr(shell, "run", lambda *_, **__: self.jobs)
        monkeypatch.setattr(before_start, "free_shared_memory", lambda: [])

    def release(self, digest: str) -> None:
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(f"releases/{digest}")

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.then()

    def spec(self, **need: int) -> dict[str, Any]:
        return {
            "instance": "tiny",
            "unit": "gpufleet-tiny.service",
            "gpus": [{"uuid": uuid, "need_mib": mib} for uuid, mib in need.items()],
            "wait_seconds": 20,
            "start_seconds": 1800,
            "state": str(self.state),
            "cache": str(self.cache),
        }

    def start(self) -> bool:
        """One start; whether the caches were there for it, with what the run before had compiled."""
        before_start.run(self.spec())
        there = self.cache.exists()
        self.cache.mkdir(parents=True, exist_ok=True)
        return there

    def end(self, result: str, after: float) -> None:
        self.now += after
        self.monkeypatch.setenv("SERVICE_RESULT", result)
        self.monkeypatch.setenv("EXIT_STATUS", "1")
        after_stop.run(self.spec())


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    return Service(tmp_path, monkeypatch)
