"""A box from bare to served to bare again: the same packages, users, units and files as before."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import state
from tests.command import GPUFLEET, run
from tests.lab.clients import completes
from tests.lab.support import SmallLab, deploy, small_lab, wait_for

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


@pytest.mark.large
def test_removed_but_for_models_and_served_again_without_bringing_them(lab: SmallLab, folder: Path) -> None:
    before = snapshot(lab, CPU)
    assert deploy(folder, ["-y", "--limit", CPU]).code == 0
    model = lab.sh(CPU, "find /opt/gpufleet/models -type f -printf '%p %i %C@\\n' | sort")
    packages = lab.sh(CPU, "dpkg-query -W -f '${Package}\\n'").split()
    gone = command(folder, "remove", CPU, "--yes")
    assert gone.returncode == 0, gone.stdout
    assert re.search(rf"{CPU} is in .*home.py still: the next deploy sets it up anew", gone.stdout), gone.stdout
    assert (
        lab.sh(CPU, "ls -A /opt/gpufleet; ls -d /var/lib/gpufleet* /var/cache/gpufleet* 2>/dev/null; id gpufleet || :")
        == "models"
    )
    assert lab.sh(CPU, "find /opt/gpufleet/models -type f -printf '%p %i %C@\\n' | sort") == model
    assert lab.sh(CPU, "dpkg-query -W -f '${Package}\\n'").split() == packages
    again = deploy(folder, ["-y", "--limit", CPU])
    assert again.code == 0, again.output
    assert serves(lab, CPU)
    assert set(model.splitlines()) <= set(
        lab.sh(CPU, "find /opt/gpufleet/models -type f -printf '%p %i %C@\\n'").splitlines()
    )
    # What the first removal left of packages nobody knows any more: these were there before this deploy.
    assert command(folder, "remove", CPU, "--models", "--packages", "--yes").returncode == 0
    assert {line.split()[0] for line in snapshot(lab, CPU) if "gpufleet" in line} == {
        line.split()[0] for line in before if "gpufleet" in line
    }


@pytest.mark.large
def test_an_instance_goes_and_the_next_deploy_brings_it_back(lab: SmallLab, folder: Path) -> None:
    assert deploy(folder, ["-y", "--limit", CPU]).code == 0
    runtimes = lab.sh(CPU, "ls /opt/gpufleet/runtimes")
    done = command(folder, "remove", f"{CPU}/standin", "--yes")
    assert done.returncode == 0, done.stdout
    assert f"`serve` of {CPU} lists standin still: the next deploy brings it back" in done.stdout
    places = "/opt/gpufleet/instances /etc/systemd/system /var/lib /var/cache"
    assert lab.sh(CPU, f"find {places} -name '*standin*'") == ""
    assert lab.sh(CPU, "ls /opt/gpufleet/runtimes") == runtimes
    assert json.loads(lab.sh(CPU, "cat /var/lib/gpufleet/state.json"))["instances"] == {}
    again = command(folder, "remove", f"{CPU}/standin")
    assert again.returncode == 0 and f"{CPU}/standin: nothing of it is left there" in again.stdout
    assert deploy(folder, ["-y", "--limit", CPU]).code == 0
    assert serves(lab, CPU)


@pytest.mark.large
@pytest.mark.parametrize("how", ["killed", "the power goes"])
def test_cut_off_in_the_middle_it_is_done_again(lab: SmallLab, folder: Path, how: str) -> None:
    assert deploy(folder, ["-y", "--limit", CPU]).code == 0
    # What takes long enough to be met: many files in a runtime that no release names.
    slow = "/opt/gpufleet/runtimes/zz-slow"
    lab.sh(CPU, f"mkdir {slow} && cd {slow} && touch pyvenv.cfg && mkdir a b c d")
    lab.sh(CPU, f"cd {slow} && for each in a b c d; do (cd $each && touch $(seq 60000)) || exit 1; done")
    process = subprocess.Popen(
        [*GPUFLEET, "remove", "inventory/home.py", CPU, "--yes", "--models"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    place = lab.where.boxes / CPU / "root/opt/gpufleet"
    wait_for(lambda: not (place / "instances").exists())
    if how == "killed":
        lab.sh(CPU, "systemctl kill -s KILL 'gpufleet-job-*'")
    else:
        lab("kill", CPU)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1, output
    if how == "killed":
        assert re.search(
            r"remove did not end: it was ended by signal 9\. See .*call `gpufleet remove` again", output
        ), output
    else:
        lab("start", CPU)
    assert lab.sh(CPU, "ls -A /opt/gpufleet/runtimes"), "it was too fast to be cut off"
    done = command(folder, "remove", CPU, "--yes", "--models")
    assert done.returncode == 0, done.stdout
    assert (
        lab.sh(
            CPU, "ls -d /opt/gpufleet /var/lib/gpufleet /run/*gpufleet* /etc/systemd/system/gpufleet* 2>/dev/null || :"
        )
        == ""
    )
    assert lab.sh(CPU, "id gpufleet 2>/dev/null || :") == ""


@pytest.mark.large
def test_a_box_that_was_taken_out_of_the_inventory_is_named_and_removed(lab: SmallLab, folder: Path) -> None:
    done = deploy(folder)
    assert done.code == 0, done.output
    page = folder / "inventory/home.py"
    both = page.read_text()
    page.write_text(lab.standin_inventory({GPU: DATA[GPU]}))
    address = state.load(lab.where).box(CPU).address
    line = f"{CPU} is not in the inventory any more; it was to serve standin on {address}"
    for said in (deploy(folder, ["--dry"]).output, command(folder, "plan").stdout, command(folder, "status").stdout):
        assert line in " ".join(said.split()), said
    assert serves(lab, CPU)
    gone = command(folder, "remove", CPU, "--yes", "--models")
    assert gone.returncode == 0, gone.stdout
    assert lab.sh(CPU, "ls -d /opt/gpufleet /var/lib/gpufleet 2>/dev/null || :") == ""
    assert line not in command(folder, "plan").stdout
    page.write_text(both)


@pytest.mark.large
def test_a_box_that_is_off_is_an_error(lab: SmallLab, folder: Path) -> None:
    lab("kill", CPU)
    try:
        done = command(folder, "remove", CPU, "--yes")
    finally:
        lab("start", CPU)
    assert done.returncode == 1, done.stdout
    assert re.search(rf"^{CPU}: .+\. [A-Z].*\.$", done.stdout, re.MULTILINE), done.stdout
