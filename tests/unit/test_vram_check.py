"""Free memory of cards before anything is stopped: what others hold, what nobody holds, what cannot be ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hostkit import vram, vram_check
from hostkit.errors import Failure
from hostkit.roots import Roots
from tests.unit.boxes import put

OURS = "gpufleet-tiny.service"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(vram_check, "Roots", lambda: Roots(str(tmp_path)))
    monkeypatch.setattr(vram_check, "STUCK_SECONDS", 0)
    monkeypatch.setattr(vram, "owner", lambda pid, roots: "bob")
    monkeypatch.setattr(vram_check.os.path, "exists", lambda path: (tmp_path / str(path).lstrip("/")).is_dir())
    return tmp_path


def process(proc: Path, pid: int, unit: str, state: str = "S", pending: int = 0) -> None:
    put(proc, f"/proc/{pid}/comm", "python3\n")
    put(proc, f"/proc/{pid}/cmdline", "python3\0train.py\0")
    put(proc, f"/proc/{pid}/cgroup", f"0::/system.slice/{unit}\n")
    put(proc, f"/proc/{pid}/status", f"State:\t{state} (x)\nSigPnd:\t{0:016x}\nShdPnd:\t{pending:016x}\n")


def holds(pid: int, mib: int | None) -> dict[str, Any]:
    return {"pid": pid, "memory_mib": mib, "name": None, "kind": "compute"}


def card(used: int | None, *processes: dict[str, Any]) -> dict[str, Any]:
    return {"index": 0, "uuid": "GPU-0", "memory_mib": 22528, "memory_used_mib": used, "processes": list(processes)}


def check(
    monkeypatch: pytest.MonkeyPatch, gpu: dict[str, Any], need: int = 20000, trouble: str | None = None, **more: Any
) -> None:
    monkeypatch.setattr(vram_check, "look", lambda uuids: ({gpu["uuid"]: gpu}, trouble))
    wanted = [{"uuid": more.get("uuid", "GPU-0"), "need_mib": need}]
    vram_check.check(wanted, [OURS, "gpufleet-old.service"], more.get("running", True))


def test_what_ours_and_the_leaving_ones_hold_counts_as_free(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(proc, 5, OURS)
    process(proc, 6, "gpufleet-old.service")
    check(monkeypatch, card(21000, holds(5, 10000), holds(6, 10900)))


def test_another_holder_is_named_with_its_unit(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(proc, 5, OURS)
    process(proc, 9, "trainer.service")
    with pytest.raises(Failure) as caught:
        check(monkeypatch, card(15000, holds(5, 10000), holds(9, 5000)))
    assert caught.value.cause == (
        "GPU 0 has 17528 MiB for 20000 MiB that are needed: "
        "held by python3 (pid 9, 5000 MiB, user bob, trainer.service)"
    )
    assert caught.value.remedy == "stop it (`systemctl stop trainer.service`), then deploy again"
    check(monkeypatch, card(15000, holds(5, 10000), holds(9, 5000)), need=17528)


@pytest.mark.parametrize("state", ["D", "Z"])
def test_a_holder_that_no_signal_ends_needs_a_reboot(proc: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    process(proc, 9, "trainer.service", state)
    with pytest.raises(Failure, match="pid 9") as caught:
        check(monkeypatch, card(5000, holds(9, 5000)), running=False)
    assert caught.value.remedy.startswith("reboot needed")


def test_an_orphan_of_ours_that_was_killed_and_stays(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(proc, 5, OURS, "D", pending=vram_check.SIGKILL)
    with pytest.raises(Failure, match="pid 5") as caught:
        check(monkeypatch, card(9000, holds(5, 9000)))
    assert caught.value.remedy.startswith("reboot needed")
    process(proc, 5, OURS, "D")  # it only waits for a disk
    check(monkeypatch, card(9000, holds(5, 9000)))


def test_memory_that_no_process_holds(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match="9000 MiB are held by no process") as caught:
        check(monkeypatch, card(9000), running=False)
    assert caught.value.remedy.startswith("reboot needed")
    check(monkeypatch, card(9000), running=True)  # a container, where NVML names no process: ours it may be
    check(monkeypatch, card(600), need=22000, running=False)  # what an older driver counts for itself


def test_a_process_whose_memory_is_not_told(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(proc, 9, "trainer.service")
    check(monkeypatch, card(9000, holds(9, None)), running=False)
    process(proc, 5, OURS)
    check(monkeypatch, card(21000, holds(5, None)))


def test_a_card_that_is_not_there(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match=r"GPU GPU-7 is not there \(GPU is lost\)"):
        check(monkeypatch, card(0), trouble="GPU is lost", uuid="GPU-7")


def test_a_driver_that_hangs(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match="the driver does not answer") as caught:
        check(monkeypatch, card(0), trouble="no answer within 20 s (in nvmlInit)")
    assert caught.value.remedy.startswith("reboot needed")


def test_without_cards_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vram_check, "look", lambda uuids: 1 / 0)
    vram_check.check([], [OURS], True)


def test_the_child_that_asks_does_not_hold_the_boxs_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that hangs keeps it for ever, and nothing else could be changed on the box until a reboot."""
    path = str(tmp_path / "lock")
    monkeypatch.setattr(vram_check.box_lock, "let_go", lambda let_go=vram_check.box_lock.let_go: let_go(path))

    def read(uuids: list[str], tell: Any) -> dict[str, Any]:
        import os

        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        held = [link for link in links if os.path.lexists(link) and os.readlink(link) == path]
        return {"gpus": [{"uuid": f"held {len(held)}"}]}

    monkeypatch.setattr(vram, "read", read)
    with vram_check.box_lock.box_lock("activate", path):
        assert vram_check.look(["held 0"]) == ({"held 0": {"uuid": "held 0"}}, None)
