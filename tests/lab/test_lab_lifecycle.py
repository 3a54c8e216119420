"""A second lab beside the main one: up, logins, a power cut, a reboot, a crash, and nothing left at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import boxes, down, nspawn, processes, rootfs, server, state
from lab.paths import REPOSITORY, Settings, settings

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = Path("/var/lib/gpufleet-lab-test-life")
    return {
        **os.environ,
        "GPUFLEET_LAB_CACHE": str(settings().cache),
        "GPUFLEET_LAB_HOME": str(home),
        "GPUFLEET_LAB_BRIDGE": "gfllife",
        "GPUFLEET_LAB_NETWORK": "10.213.78.0/24",
    }


@pytest.fixture(scope="module")
def where(environment: dict[str, str]) -> Iterator[Settings]:
    given = settings(environment)
    subprocess.run([sys.executable, "-m", "lab", "down"], cwd=REPOSITORY, env=environment, check=True)
    yield given
    subprocess.run([sys.executable, "-m", "lab", "down"], cwd=REPOSITORY, env=environment, check=False)


@pytest.fixture
def lab(environment: dict[str, str]):  # type: ignore[no-untyped-def]
    def call(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "lab", *arguments],
            cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return call


def test_two_boxes_come_up_and_answer(lab, where: Settings) -> None:  # type: ignore[no-untyped-def]
    lab("up", "2", "--topology", "dual-3090-nv4")
    assert [(box.name, box.address, box.topology) for box in state.load(where).boxes] == [
        ("lab-1", "10.213.78.11", "dual-3090-nv4"),
        ("lab-2", "10.213.78.12", None),
    ]
    assert lab("ssh", "lab-1", "hostname; systemctl is-system-running").split() == ["lab-1", "running"]
    assert lab("ssh", "lab-1", "cat /etc/machine-id") != lab("ssh", "lab-2", "cat /etc/machine-id")
    assert "absent" in lab("ssh", "lab-2", "ls /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 2>/dev/null || echo absent")


def test_boxes_do_not_share_control_groups(where: Settings) -> None:
    """Else a service stopped on one box waits for that of the same name on another."""
    first, second = (set(nspawn.members(where, box.name)) for box in state.load(where).boxes)
    assert first and second and not first & second
    assert {state.load(where).box("lab-1").pid, state.load(where).box("lab-1").nspawn} <= first


def test_up_again_changes_nothing_and_refuses_another_topology(lab, where: Settings) -> None:  # type: ignore[no-untyped-def]
    before = state.load(where)
    lab("up", "2")
    assert state.load(where) == before
    assert "lab-1 is there with topology dual-3090-nv4" in lab("up", "2", "--topology", "dual-2080ti-nv2", code=1)


def test_packages_come_from_the_labs_repository(lab) -> None:  # type: ignore[no-untyped-def]
    said = lab("ssh", "lab-2", "apt-get -q update && apt-get -qy install libnuma1 && dpkg -s libnuma1 | grep Status")
    assert "install ok installed" in said
    assert "not signed" not in said


def test_a_power_cut_keeps_the_disk(lab, where: Settings) -> None:  # type: ignore[no-untyped-def]
    lab("ssh", "lab-1", "echo kept > /root/note; sync")
    lab("kill", "lab-1")
    assert nspawn.running(rootfs.root(where, "lab-1")) is None
    assert "off" in lab("status").splitlines()[0]
    assert "off already" in lab("kill", "lab-1", code=1)
    lab("start", "lab-1")
    assert lab("ssh", "lab-1", "cat /root/note").strip() == "kept"


def test_a_dead_box_is_started_again_by_up(lab, where: Settings) -> None:  # type: ignore[no-untyped-def]
    lab("kill", "lab-2")
    assert "lab-2  10.213.78.12  cpu-only  started" in lab("up", "2")


def test_a_reboot_from_inside_keeps_the_address(lab, where: Settings) -> None:  # type: ignore[no-untyped-def]
    root = rootfs.root(where, "lab-2")
    before = nspawn.running(root)
    lab("ssh", "lab-2", 'setsid sh -c "sleep 0.5; systemctl reboot" </dev/null >/dev/null 2>&1 &')
    until = time.monotonic() + 30
    while nspawn.running(root) in (before, None):
        assert time.monotonic() < until
        time.sleep(0.1)
    nspawn.wait_ready("lab-2", where.box_address("lab-2"), root)
    assert lab("ssh", "lab-2", "hostname").strip() == "lab-2"


def crash(where: Settings) -> None:
    """What keeps the lab dies at once, the boxes' own processes live on without it, and its record is half written."""
    for name in boxes.names_on_disk(where):
        nspawn_pid = nspawn.running(rootfs.root(where, name))
        assert nspawn_pid is not None
        processes.send([nspawn_pid], signal.SIGKILL)
    pid = server.running(where)
    assert pid is not None
    processes.send([pid], signal.SIGKILL)
    state.path(where).write_text('{"schema": 1, "bri')


def test_up_after_a_crash_finds_the_boxes_by_their_disks(lab, where: Settings) -> None:  # type: ignore[no-untyped-def]
    crash(where)
    lab("up", "2")
    assert [box.topology for box in state.load(where).boxes] == ["dual-3090-nv4", None]
    assert lab("ssh", "lab-1", "cat /root/note").strip() == "kept"


def test_down_without_a_record_leaves_nothing(lab, where: Settings) -> None:  # type: ignore[no-untyped-def]
    state.path(where).unlink()
    assert down.leftovers(where) != []
    lab("down")
    assert down.leftovers(where) == []
    assert not where.home.exists()
    assert where.cache.is_dir()
    assert not any(place.exists() for place in nspawn.cgroup_places(where))
    assert "there is no lab" in lab("down")


def test_down_after_a_crash_leaves_nothing(lab, where: Settings) -> None:  # type: ignore[no-untyped-def]
    lab("up", "1")
    crash(where)
    lab("down")
    assert down.leftovers(where) == []
    assert not where.home.exists()
