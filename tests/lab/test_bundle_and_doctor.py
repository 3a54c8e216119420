"""`gpufleet doctor` and `bundle` on a booted box: a preflight that leaves nothing, a bundle that names nobody."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import state
from tests.command import GPUFLEET, run
from tests.lab.rollouts import Fleet
from tests.lab.support import SmallLab, small_lab, wait_for

pytestmark = pytest.mark.lab
BOX = "lab-1"
# All files with size and time, but for what any login and any running system write: logs, the books of sshd and PAM.
FILES = (
    "find / -xdev \\( -path /proc -o -path /sys -o -path /run -o -path /var/log -o -path /dev \\) -prune "
    "-o -type f -printf '%p %s %T@\\n' | sort; ls -d /opt/* /run/gpufleet* /dev/shm/* 2>/dev/null"
)


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("bund", 99, ["cpu-only"]) as fresh:
        yield fresh


@pytest.fixture(scope="module")
def fleet(lab: SmallLab, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(lab, lab.standin_folder(tmp_path_factory.mktemp("home"), {BOX: {}}), [BOX])


def doctor(fleet: Fleet) -> tuple[int, dict[str, dict[str, Any]]]:
    done = run(fleet.folder, "doctor", "inventory/home.py", "--json", program=GPUFLEET)
    page = json.loads(done.stdout)
    (box,) = [box for box in page["boxes"] if box["name"] == BOX]
    return done.returncode, {line["check"]: line for line in box["checks"]}


def test_a_preflight_of_a_bare_box_leaves_no_file(fleet: Fleet) -> None:
    before = fleet.lab.sh(BOX, FILES + " || :")
    code, found = doctor(fleet)
    assert code == 0, found
    wanted = ("host key", "ssh", "root", "python", "apt", "network", "disk")
    assert {check: found[check]["cause"] for check in wanted if found[check]["level"] != "ok"} == {}
    assert fleet.lab.sh(BOX, FILES + " || :") == before
    assert "/opt/gpufleet" not in before and not (fleet.folder / "inventory/facts").exists()


def test_what_would_stop_a_deploy_is_found_before(fleet: Fleet) -> None:
    sh = fleet.lab.sh
    bad = "deb [trusted=yes] http://no-such-mirror.invalid/debian bookworm main"
    sh(BOX, f"echo '{bad}' > /etc/apt/sources.list.d/bad.list")
    hold = "f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(99)"
    lock = f"import fcntl, time; {hold}"
    sh(BOX, f'systemd-run --unit holder python3 -c "{lock}"')
    sh(BOX, "systemd-run --unit taker python3 -m http.server 8000")
    wait_for(lambda: sh(BOX, "ss -ltn | grep -c :8000 || :") == "1")
    try:
        code, found = doctor(fleet)
    finally:
        sh(BOX, "systemctl stop holder taker; rm /etc/apt/sources.list.d/bad.list")
    assert code in (1, 3)
    assert found["ports"]["code"] == "GF604" and "taker.service" in found["ports"]["cause"]
    assert "no-such-mirror.invalid: its name does not resolve" in found["network"]["cause"]
    assert "python3 (pid " in found["apt"]["cause"] and "lock-frontend" in found["apt"]["cause"]
    assert doctor(fleet)[0] == 0


def test_a_bundle_of_a_box_that_serves(fleet: Fleet, tmp_path: Path) -> None:
    done = fleet.deploy()
    assert done.code == 0, done.output
    path = tmp_path / "x.tar.gz"
    made: subprocess.CompletedProcess[str] = fleet.command("bundle", BOX, "-o", str(path))
    assert made.returncode == 0, made.stdout
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    files = {
        str(each.relative_to(tmp_path / "bundle")): each.read_text() for each in (tmp_path / "bundle").rglob("*.*")
    }
    assert {"facts.json", "plan.json", "state.json", "gates.json", "report.json", "logs/standin.txt"} <= set(files)
    assert json.loads(files["gates.json"])["history"]["standin"][0]["outcome"] == "activated"
    assert json.loads(files["status.json"])["instances"][0]["state"] == "serving"
    assert "torch" in files["versions.json"] or "vllm" in files["versions.json"]
    assert "serve" in json.loads(files["processes.json"])["engines"]["standin"]
    assert "Application startup complete" in files["logs/standin.txt"]
    sh = fleet.lab.sh
    secret = [BOX, state.load(fleet.lab.where).box(BOX).address, sh(BOX, "cat /etc/machine-id")]
    secret += sh(BOX, "cat /sys/class/net/*/address").split() + [sh(BOX, "cat /proc/sys/kernel/random/boot_id")]
    everything = "\n".join(files.values())
    assert [each for each in secret if each != "00:00:00:00:00:00" and each in everything] == []
