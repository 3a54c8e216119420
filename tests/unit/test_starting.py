"""Before a service starts: room on its cards, nothing stale in its way; what the kit is told and says."""

from __future__ import annotations

import json
import os
import pwd
import sys
from pathlib import Path

import pytest

from gpufleet import need, starting
from gpufleet.environment import CACHES
from hostkit import __main__ as kit
from hostkit import before_start, start_note, vram
from hostkit.errors import Failure
from hostkit.roots import Roots
from tests.unit.boxes import put
from tests.unit.findings import cards, engine, served
from tests.unit.fleets import cpu_facts, plan
from tests.unit.service_start import Cards, Service, service

__all__ = ["service"]  # a fixture


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
