"""What is kept of each box: hardware that changed, and `gpufleet discover`."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest

from tests.command import GPUFLEET, deploy, run
from tests.operations.boxes import IDLE, INVENTORY, LOOPBACK, PASSWORD, Boxes
from tests.operations.three import CPU, MACHINE, TURING, line, state, three
from tests.unit.fleets import gpu_facts

__all__ = ["three"]  # the fixture


# Hardware that changed


def test_changed_hardware_is_refused_until_it_is_discovered(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    assert deploy(folder, "-y").returncode == 0
    kept = three.cached(folder, "turing-1")
    three.facts["turing-1"] = gpu_facts(
        link="NV1", **{**MACHINE, "memory": {"total_mib": 32768, "available_mib": 1, "swap_mib": 0}}
    )
    for option in ("--dry", "-y"):
        done = deploy(folder, option)
        assert done.returncode == 3, done.stdout
        said = line(done.stdout, "turing-1")
        assert "RAM: 65536 MiB before, 32768 MiB now; 0-1: NV2 before, NV1 now [GF109 hardware-changed]" in said
        assert "gpufleet discover inventory/home.py --limit" in said
        assert state(done.stdout, "cpu-1") == "not touched: the run was refused"
    assert three.cached(folder, "turing-1") == kept
    found = run(tmp_path, "discover", "inventory/home.py", "--limit", "turing-1", program=GPUFLEET)
    assert found.returncode == 0, found.stdout
    assert "turing-1: 0-1: NV2 before, NV1 now" in found.stdout
    assert three.cached(folder, "turing-1")["links"] == {"0-1": "NV1"}
    done = deploy(folder, "-y")
    assert done.returncode == 0 and state(done.stdout, "turing-1") == "nothing to do", done.stdout


def test_what_passes_does_not_rewrite_the_facts(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    assert deploy(folder, "-y").returncode == 0
    path = folder / "inventory/facts/home/turing-1.json"
    before = path.read_text()
    busy = copy.deepcopy(TURING)
    busy.update(
        at="2030-01-01T00:00:00Z",
        ports={"22": {"pid": 4, "command": None, "unit": None}},
        memory={"total_mib": 65536, "available_mib": 1, "swap_mib": 0},
    )
    busy["gpus"][0]["memory_used_mib"] = 17
    three.facts["turing-1"] = busy
    assert deploy(folder, "-y").returncode == 0
    assert run(folder, "discover", "inventory/home.py", program=GPUFLEET).returncode == 0
    assert path.read_text() == before
    three.facts["turing-1"] = {**busy, "driver": {**busy["driver"], "version": "580.200.01", "module": "580.200.01"}}
    assert deploy(folder, "-y").returncode == 0  # a driver is no hardware
    assert three.cached(folder, "turing-1")["driver"]["version"] == "580.200.01"
    assert three.cached(folder, "turing-1")["at"] == "2030-01-01T00:00:00Z"


# gpufleet discover


def test_discover_shows_each_box_and_what_changed(three: Boxes, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    folder = three.folder(tmp_path / "home")
    done = run(tmp_path, "discover", "home/inventory/home.py", program=GPUFLEET)
    assert done.returncode == 0, done.stdout
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("turing-1 ")]
    for word in ("sm75 nvlink", "2 × a card 22528 MiB", "1 × NV2", "580.159.03 (CUDA 13.0)", "debian 12"):
        assert word in row
    assert "cpu-1: not known before" in done.stdout
    three.facts["cpu-1"] = {**CPU, "os": {**CPU["os"], "version_id": "13"}}
    again = run(tmp_path, "discover", "home/inventory/home.py", program=GPUFLEET)
    assert [line for line in again.stdout.splitlines() if re.match(r"\S+: ", line)] == [
        "cpu-1: os.version_id: 12 before, 13 now"
    ]
    assert three.cached(folder, "cpu-1")["os"]["version_id"] == "13"
    assert "Warning" not in done.stdout + again.stdout


def test_the_users_ssh_config_is_honoured(three: Boxes, tmp_path: Path) -> None:
    """Address, port and user of a bare name, by a pattern."""
    folder, name = three.folder(tmp_path), "turing-1"
    config = tmp_path / "ssh-config"
    config.write_text(f"Host turing-*\n  HostName {LOOPBACK}\n  Port {three.ports[name]}\n  User root\n")
    login = {"ssh_password": PASSWORD, "ssh_allow_agent": False, "ssh_look_for_keys": False}
    login |= {"ssh_known_hosts_file": str(tmp_path / "known_hosts"), "ssh_config_file": str(config)}
    inventory = folder / "inventory" / "home.py"
    inventory.write_text(INVENTORY.format(boxes=[(name, {**login, **IDLE})]))
    done = run(folder, "discover", "inventory/home.py", program=GPUFLEET)
    assert done.returncode == 0, done.stdout
    assert three.cached(folder, name)["gpus"] and three.looks[name] == 1
    done = deploy(folder, "-y", "--limit", "sm75")
    assert done.returncode == 0 and state(done.stdout, name) == "nothing to do", done.stdout


def test_discover_with_a_box_that_is_off(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    three.off.add("ampere-1")
    done = run(folder, "discover", "inventory/home.py", program=GPUFLEET)
    assert done.returncode == 1, done.stdout
    assert "does not speak SSH" in line(done.stdout, "ampere-1") and "Traceback" not in done.stdout
    assert three.cached(folder, "turing-1") and three.cached(folder, "cpu-1")


def test_discover_keeps_what_was_known_when_the_driver_fails(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    assert run(folder, "discover", "inventory/home.py", program=GPUFLEET).returncode == 0
    kept = three.cached(folder, "turing-1")
    failed = {"gpus": [], "links": {}, "errors": [{"source": "nvml", "message": "Driver/library version mismatch"}]}
    three.facts["turing-1"] = {**TURING, **failed}
    done = run(folder, "discover", "inventory/home.py", program=GPUFLEET)
    assert done.returncode == 1 and "Driver/library version mismatch" in line(done.stdout, "turing-1"), done.stdout
    assert three.cached(folder, "turing-1") == kept


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["inventory/hom.py"], "there is no inventory inventory/hom.py"),
        (["inventory/home.py", "--limit", "turing-l"], "did you mean 'turing-1'?"),
        (["inventory/broken.py"], "inventory/broken.py: line 1: ZeroDivisionError"),
        (["inventory/plain.py"], "does not call gpufleet.inventory.by_traits"),
        (["inventory/wrong.py"], "inventory/wrong.py: box a: unknown key 'ssh_host'"),
    ],
)
def test_discover_with_a_wrong_call(three: Boxes, tmp_path: Path, arguments: list[str], says: str) -> None:
    folder = three.folder(tmp_path)
    (folder / "inventory/broken.py").write_text("1 / 0\n")
    (folder / "inventory/plain.py").write_text("boxes = ['a']\n")
    (folder / "inventory/wrong.py").write_text(
        "from gpufleet.inventory import by_traits\nglobals().update(by_traits([('a', {'ssh_host': '127.0.0.1'})]))\n"
    )
    done = run(folder, "discover", *arguments, program=GPUFLEET)
    assert done.returncode == 2 and says in done.stdout and "Traceback" not in done.stdout, done.stdout
    assert three.logins == {}


def test_an_answer_that_could_not_be_read_again_is_said_and_not_kept(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    three.facts["cpu-1"] = {**CPU, "disks": {"/": {"free_mib": 5}}}
    done = run(folder, "discover", "inventory/home.py", program=GPUFLEET)
    assert done.returncode == 1, done.stdout
    assert "cpu-1: its answer is not as facts have to be (disks./.total_mib: Field required)" in done.stdout
    assert sorted(path.stem for path in (folder / "inventory/facts/home").glob("[!.]*")) == ["ampere-1", "turing-1"]
