"""Signs of life of a unit: processor time, disk, new lines; what is not known is no proof of a stall."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hostkit.gate_life import Life
from hostkit.roots import Roots
from tests.unit.boxes import put

GROUP = "/system.slice/x.service"


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def box(root: Path, cpu_seconds: float = 0, read: int = 0, faults: int = 0, pids: str = "11 12") -> None:
    """Processor time and disk reads of the unit so far."""
    put(root, f"/sys/fs/cgroup{GROUP}/cpu.stat", f"usage_usec {int(cpu_seconds * 1e6)}\nuser_usec 0\n")
    put(root, f"/sys/fs/cgroup{GROUP}/cgroup.procs", pids.replace(" ", "\n") + "\n")
    put(root, "/proc/11/io", f"rchar: 0\nwchar: 5\nread_bytes: {read}\n")
    put(root, "/proc/11/stat", f"11 (a name) S 1 1 1 0 -1 0 10 0 {faults} 0 1 1 0 0\n")
    put(root, "/proc/12/io", "rchar: 0\nread_bytes: 0\n")


def looks(root: Path, clock: Clock, *steps: tuple[dict[str, float], list[str]]) -> list[float]:
    """A look every 15 s; the seconds of quiet at each."""
    life, quiet = Life(Roots(str(root))), []
    for numbers, lines in steps:
        clock.now += 15
        box(root, **numbers)  # type: ignore[arg-type]
        quiet.append(life.look(GROUP, lines))
    return quiet


def test_nothing_at_all_is_quiet(tmp_path: Path, clock: Clock) -> None:
    assert looks(tmp_path, clock, *[({}, ["INFO loading"])] * 4) == [0, 15, 30, 45]


def test_waking_up_now_and_then_is_no_work(tmp_path: Path, clock: Clock) -> None:
    steps = [({"cpu_seconds": number * 0.1}, ["INFO loading"]) for number in range(4)]
    assert looks(tmp_path, clock, *steps) == [0, 15, 30, 45]


@pytest.mark.parametrize("sign", [{"cpu_seconds": 0.2}, {"read": 2 << 20}, {"faults": 300}])
def test_each_sign_counts(tmp_path: Path, clock: Clock, sign: dict[str, float]) -> None:
    assert looks(tmp_path, clock, ({}, []), ({}, []), (sign, []), (sign, [])) == [0, 15, 0, 15]


def test_a_new_line_counts_and_one_that_repeats_does_not(tmp_path: Path, clock: Clock) -> None:
    again = "No available shared memory broadcast block found in {} seconds"
    steps = [[again.format(60)], [again.format(60), again.format(120)], [again.format(180)], ["INFO graphs captured"]]
    assert looks(tmp_path, clock, *[({}, lines) for lines in steps]) == [0, 15, 30, 0]


def test_a_process_that_ended_counts(tmp_path: Path, clock: Clock) -> None:
    assert looks(tmp_path, clock, ({"read": 9 << 20}, []), ({"read": 0}, [])) == [0, 0]


def test_the_older_control_groups_are_read_as_well(tmp_path: Path, clock: Clock) -> None:
    life = Life(Roots(str(tmp_path)))
    put(tmp_path, f"/sys/fs/cgroup/systemd{GROUP}/cgroup.procs", "11\n")
    put(tmp_path, "/proc/11/io", "rchar: 0\nread_bytes: 0\n")
    quiet = []
    for nanoseconds in (0, 0, 10**9):
        put(tmp_path, f"/sys/fs/cgroup/cpuacct{GROUP}/cpuacct.usage", f"{nanoseconds}\n")
        clock.now += 15
        quiet.append(life.look(GROUP, []))
    assert quiet == [0, 15, 0]


@pytest.mark.parametrize("group", ["", GROUP])
def test_what_the_kernel_does_not_tell_is_no_proof(tmp_path: Path, clock: Clock, group: str) -> None:
    life = Life(Roots(str(tmp_path)))
    clock.now += 900
    assert life.look(group, []) == 0
    clock.now += 900
    assert life.look(group, []) == 0
