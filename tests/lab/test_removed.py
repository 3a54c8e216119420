"""A box from bare to served to bare again: the same packages, users, units and files as before."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import state
from tests.command import GPUFLEET, run
from tests.lab.clients import completes
from tests.lab.support import SmallLab, deploy, small_lab

pytestmark = pytest.mark.lab

GPU, CPU = "lab-1", "lab-2"
UNIT = "gpufleet-standin.service"
# With a CUDA toolkit, its holds and its apt source on the one, and packages for the engine on both.
DATA: dict[str, dict[str, Any]] = {GPU: {"host": {}}, CPU: {}}
# What the system itself writes, each for a reason of its own: logs, caches, lists, backups of what it edits.
PASSING = """
/proc /sys /run /tmp /dev /root /var/log /var/tmp /var/cache/apt /var/cache/debconf /var/cache/ldconfig /var/lib/apt
/var/lib/dpkg /var/lib/systemd /etc/ld.so.cache /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/.pwd.lock
"""
SNAPSHOT = rf"""
find / -xdev \( {" -o ".join(f"-path {path}" for path in PASSING.split())} \) -prune -o -name __pycache__ -prune -o \
  -type f -printf '%p %s %m %u %g\n' -o -type l -printf '%p -> %l\n' -o -type d -printf '%p/ %m %u %g\n' | sort
find /etc -type f ! -name '*-' ! -name ld.so.cache -exec sha256sum {{}} + | sort -k 2
dpkg-query -W -f '${{Package}} ${{Version}} ${{db:Status-Abbrev}}\n' | grep -v ' rc '
sort /etc/passwd /etc/group
systemctl list-unit-files --plain --no-legend
find /run -name '*gpufleet*'; find /dev/shm -type f
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("remov", 74, ["dual-2080ti-nv2", "cpu-only"]) as found:
        yield found


@pytest.fixture(scope="module")
def folder(lab: SmallLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lab.standin_folder(tmp_path_factory.mktemp("home"), DATA)


def snapshot(lab: SmallLab, box: str) -> list[str]:
    return lab.sh(box, SNAPSHOT).splitlines()


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    verb, *rest = words
    return run(folder, verb, "inventory/home.py", *rest, program=GPUFLEET)


def serves(lab: SmallLab, box: str) -> bool:
    return completes(f"{state.load(lab.where).box(box).address}:8000", "standin")


def test_a_box_is_as_it_was_before(lab: SmallLab, folder: Path) -> None:
    before = {box: snapshot(lab, box) for box in DATA}
    done = deploy(folder)
    assert done.code == 0, done.output
    for box in DATA:
        assert serves(lab, box)
        assert snapshot(lab, box) != before[box]
    assert lab.sh(GPU, "apt-mark showhold") and lab.sh(GPU, "/usr/local/cuda-13.0/bin/nvcc --version")
    facts = folder / "inventory/facts/home"
    for box in DATA:
        asked = command(folder, "remove", box)  # without a terminal
        assert asked.returncode == 2 and "there is no terminal to ask in" in asked.stdout, asked.stdout
        assert serves(lab, box)
        gone = command(folder, "remove", box, "--models", "--packages", "--yes")
        assert gone.returncode == 0, gone.stdout
        assert f"{box}: removed" in gone.stdout
        assert snapshot(lab, box) == before[box]
        assert not (facts / f"{box}.json").exists()
        (kept,) = (folder / "inventory/reports/home").glob(f"{box}-*.journal.jsonl")
        events = [json.loads(line)["event"] for line in kept.read_text().splitlines()]
        assert "activated" in events
        again = command(folder, "remove", box, "--models", "--packages", "--yes")
        assert again.returncode == 0, again.stdout
        assert f"{box}: nothing of gpufleet is left there" in again.stdout
        assert snapshot(lab, box) == before[box]
