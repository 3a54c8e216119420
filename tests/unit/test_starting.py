"""Before a service starts and after it ended: room on its cards, nothing stale in its way, a failed start noted."""

from __future__ import annotations

import json
import os
import pwd
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpufleet import need, starting
from gpufleet.environment import CACHES
from hostkit import __main__ as kit
from hostkit import after_stop, before_start, listeners, shell, start_note, vram
from hostkit.errors import Failure
from hostkit.roots import Roots
from tests.unit.boxes import put
from tests.unit.findings import cards, engine, served
from tests.unit.fleets import cpu_facts, plan

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


def test_a_free_card_is_not_waited_for(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    Cards(monkeypatch, a=20_000)
    before_start.run(service.spec(a=20_000))
    assert service.now == 1000.0


def test_memory_that_gets_free_is_waited_for(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Cards(monkeypatch, a=100, b=20_000)
    service.then = lambda: found.free.update(a=20_000) if service.now > 1005 else None
    before_start.run(service.spec(a=20_000, b=20_000))
    assert service.now == 1006.0
    (said,) = [json.loads(line)["message"] for line in capsys.readouterr().out.splitlines()]
    assert said == (
        "waiting for free memory: GPU 0 has 100 MiB free, 20000 MiB are needed: "
        "held by python3 (pid 4242, 9000 MiB, user bob, comfyui.service)"
    )


def test_memory_that_does_not_get_free_ends_the_start_and_names_who_holds_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cards(monkeypatch, a=100, b=200).processes["b"] = []
    with pytest.raises(Failure) as caught:
        before_start.run(service.spec(a=20_000, b=20_000))
    assert service.now == 1020.0
    assert "user bob, comfyui.service); GPU 1 has 200 MiB free" in caught.value.cause
    assert caught.value.cause.endswith("no process that can be seen holds the rest")
    service.end("exit-code", 1)  # ExecStopPost runs after a start that was not let go on, too
    assert start_note.read(str(service.state))["failed"] is None


def test_a_card_that_is_gone_is_said_to_be(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    Cards(monkeypatch, a=20_000)
    with pytest.raises(Failure, match="GPU-z is not there"):
        before_start.run(service.spec(**{"GPU-z": 1}))


def test_where_nvml_does_not_answer_the_engine_starts(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Cards(monkeypatch, a=0).module()
    found.nvmlInit = lambda: 1 / 0
    monkeypatch.setitem(sys.modules, "pynvml", found)
    before_start.run(service.spec(a=20_000))
    assert "NVML does not answer" in capsys.readouterr().out


def test_a_process_is_told_by_its_name_its_user_and_its_unit(tmp_path: Path) -> None:
    put(tmp_path, "/proc/7/comm", "VLLM::EngineCor\n")
    put(tmp_path, "/proc/7/cgroup", "0::/system.slice/gpufleet-tiny.service\n")
    user, roots = pwd.getpwuid(os.getuid()).pw_name, Roots(str(tmp_path))
    told = vram.described({"pid": 7, "memory_mib": 512, "name": None}, roots)
    assert told == f"VLLM::EngineCor (pid 7, 512 MiB, user {user}, gpufleet-tiny.service)"
    gone = {"pid": 8, "memory_mib": None, "name": None}
    assert vram.described(gone, roots) == "a process (pid 8, user unknown)"


def test_caches_go_once_after_a_failed_start(service: Service) -> None:
    assert not service.start()
    service.end("exit-code", 60)
    assert not service.start(), "taken away, for they may be damaged"
    service.end("signal", 60)
    assert service.start(), "they were new: it is not they"
    service.end("exit-code", 60)
    assert service.start()
    service.end("exit-code", 2000)  # long after it was ready
    assert service.start()
    service.end("exit-code", 60)
    assert not service.start(), "after a good start it is done again"


def test_a_release_that_is_put_back_gets_its_caches_back(service: Service) -> None:
    service.start()
    (service.cache / "kernels").write_text("of the good release")
    service.end("success", 3600)
    service.release("b" * 16)
    assert service.start(), "of the same runtime and model"
    service.end("exit-code", 60)
    assert not service.start(), "systemd starts it again"
    service.end("exit-code", 60)
    service.release("a" * 16)
    assert service.start() and (service.cache / "kernels").read_text() == "of the good release"
    service.end("exit-code", 60)  # its own failure: now they are in doubt
    assert not service.start()


def test_what_another_release_failed_with_takes_nothing_from_this_one(service: Service) -> None:
    service.start()
    service.end("exit-code", 60)
    service.release("b" * 16)
    assert service.start()


def test_caches_in_doubt_are_kept_aside_until_a_start_is_good(service: Service) -> None:
    service.start()
    aside = service.cache.with_name("tiny-r1.failed")
    service.end("exit-code", 60)
    service.start()
    assert aside.is_dir()
    service.end("success", 3600)
    service.start()
    assert not aside.exists()


def test_an_end_that_somebody_asked_for_is_no_failed_start(service: Service) -> None:
    service.start()
    service.jobs = "4711\n"  # systemctl restart, and the engine ends with another status than 0
    service.end("exit-code", 60)
    service.jobs = ""
    assert service.start()
    service.end("success", 60)
    assert service.start()


def test_without_systemd_to_ask_an_early_end_is_a_failed_start(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> str:
        raise Failure("systemctl is not installed", "")

    monkeypatch.setattr(shell, "run", refused)
    service.start()
    service.end("exit-code", 60)
    assert not service.start()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"began": "x", "failed": 1, "wiped": 2}'])
def test_a_torn_note_is_none(service: Service, text: str) -> None:
    (service.state / start_note.NAME).write_text(text)
    assert start_note.read(str(service.state)) == {"began": None, "failed": None, "wiped": False, "release": ""}
    service.start()


def test_only_offloaded_caches_that_nobody_has_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shm, proc = tmp_path / "shm", tmp_path / "proc"
    for name in (
        "vllm_offload_stale.mmap",
        "vllm_offload_mapped.mmap",
        "vllm_offload_open.mmap",
        "psm_x",
        "other.mmap",
    ):
        shm.mkdir(exist_ok=True)
        (shm / name).write_text("x")
    (proc / "7/fd").mkdir(parents=True)
    (proc / "7/maps").write_text(f"7f00-7f01 rw-s 00000000 00:1a 99    {shm}/vllm_offload_mapped.mmap\n")
    (proc / "7/fd/3").symlink_to(shm / "vllm_offload_open.mmap")
    (proc / "self").mkdir()
    assert before_start.free_shared_memory(str(shm), str(proc)) == ["vllm_offload_stale.mmap"]
    assert len(list(shm.iterdir())) == 4
    (shm / "vllm_offload_theirs.mmap").write_text("x")
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert before_start.free_shared_memory(str(shm), str(proc)) == []


def test_a_file_in_use_on_this_machine_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "vllm_offload_here.mmap"
    path.write_text("x")
    with path.open():
        assert before_start.free_shared_memory(str(tmp_path)) == []
    assert before_start.free_shared_memory(str(tmp_path)) == ["vllm_offload_here.mmap"]


def test_the_kit_takes_a_verb_with_a_hyphen_and_its_spec_from_a_file(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "start.json"
    file.write_text(json.dumps(service.spec()))
    assert kit.main(["before-start", str(file)]) == 0
    assert json.loads(capsys.readouterr().out) == {"event": "result", "removed": []}
    file.write_text("{")
    assert kit.main(["before-start", str(file)]) == 1
    assert "start.json is no JSON" in capsys.readouterr().out
    assert kit.main(["before-start", str(tmp_path / "none.json")]) == 1
    assert kit.main(["before-start", "a", "b"]) == 2


def test_in_the_journal_the_kit_speaks_text(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Cards(monkeypatch, a=100)
    file = tmp_path / "start.json"
    file.write_text(json.dumps(service.spec(a=20_000)))
    at = os.fstat(1)
    monkeypatch.setenv("JOURNAL_STREAM", f"{at.st_dev}:{at.st_ino}")
    monkeypatch.setattr(kit.events, "plain", False)
    assert kit.main(["before-start", str(file)]) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("error: GPU 0 has 100 MiB free, 20000 MiB are needed: held by python3 (pid 4242,")


def test_what_is_needed_of_a_card_is_what_the_engine_asks_for() -> None:
    by = engine("sm75")
    (instance,) = served(cards(2), by, {"gpu-memory-utilization": 0.9}).instances
    assert need.gpus(instance) == [{"uuid": f"GPU-{index}", "need_mib": 19931} for index in range(2)]
    (usual,) = served(cards(1), by).instances
    assert need.gpus(usual)[0]["need_mib"] == 20374
    (fixed,) = served(cards(1), by, {"kv-cache-memory-bytes": 1}).instances
    assert need.gpus(fixed)[0]["need_mib"] == 0  # a page without sizes: nobody knows
    assert need.gpus(plan(cpu_facts()).instances[0]) == []


def test_the_spec_of_a_start_names_the_folders_that_the_service_has() -> None:
    instance = plan(cpu_facts()).instances[0]
    spec = starting.spec(instance)
    assert spec["state"] == instance.env["HOME"] == "/var/lib/gpufleet-tiny"
    assert all(instance.env[name] == f"{spec['cache']}/{folder}" for name, folder in CACHES.items())
    assert spec["unit"] == "gpufleet-tiny.service" and spec["start_seconds"] == instance.model.gate.timeout
