"""What goes wrong on real boxes: one line with cause and remedy; the others finish."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import state
from lab.base import SUDO_PASSWORD
from tests.lab.support import SmallLab, deploy, small_lab, started, wait_for

pytestmark = pytest.mark.lab
GPU = "dual-3090-nv4"
HELD = "not touched: the run was refused"
TOOLKIT: dict[str, Any] = {"host": {"toolkit": "13-0"}}


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    """lab-1 is never harmed: it is the other box, which has to finish. Only lab-3 and lab-4 have GPUs."""
    with small_lab("fail", 79, ["cpu-only", "cpu-only", GPU, GPU]) as fresh:
        yield fresh


# Boxes that cannot be worked with


def test_a_wrong_ssh_key(lab: SmallLab, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    done = deploy(lab.folder(tmp_path, {"lab-1": {}, "lab-2": {"ssh_key": str(key)}}))
    line = done.problem("lab-2")
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert "Authentication" in line and str(key) in line and "ssh_key" in line


def test_a_missing_ssh_key(lab: SmallLab, tmp_path: Path) -> None:
    done = deploy(lab.folder(tmp_path, {"lab-1": {}, "lab-2": {"ssh_key": str(tmp_path / "nothing")}}))
    line = done.problem("lab-2")
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert str(tmp_path / "nothing") in line


def test_an_encrypted_ssh_key(lab: SmallLab, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "locked", "-f", str(key)], check=True)
    done = deploy(lab.folder(tmp_path, {"lab-1": {}, "lab-2": {"ssh_key": str(key)}}))
    line = done.problem("lab-2")
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert str(key) in line and "ssh_key_password" in line


def test_a_box_without_python(lab: SmallLab, tmp_path: Path) -> None:
    lab.sh("lab-2", "mv /usr/bin/python3 /usr/bin/python3.away")
    try:
        done = deploy(lab.folder(tmp_path, {"lab-1": {}, "lab-2": {}}))
    finally:
        lab.sh("lab-2", "mv /usr/bin/python3.away /usr/bin/python3")
    line = done.problem("lab-2")
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert "there is no python3" in line and "apt-get install python3" in line


def test_a_box_that_is_off(lab: SmallLab, tmp_path: Path) -> None:
    folder = lab.folder(tmp_path, {"lab-1": {}, "lab-2": {}})
    lab("kill", "lab-2")
    try:
        done = deploy(folder)
    finally:
        lab("start", "lab-2")
    line = done.problem("lab-2")
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert "Could not connect" in line and "is on" in line


# Rules and apt


def serving(lab: SmallLab, **more: Any) -> dict[str, Any]:
    return {"serve": [state.load(lab.where).model["name"]], **more}


def untouched(lab: SmallLab, box: str, left: str = "") -> None:
    """`left`: what is in the folder of states."""
    assert lab.sh(box, "ls /opt/gpufleet") == "kit"
    assert lab.sh(box, "ls -A /var/lib/gpufleet 2>/dev/null || :") == left
    assert lab.sh(box, "ls -d /etc/systemd/system/gpufleet-* 2>/dev/null || :") == ""
    assert lab.sh(box, "id gpufleet 2>/dev/null || :") == ""


def test_a_port_that_is_taken(lab: SmallLab, tmp_path: Path) -> None:
    lab.sh("lab-2", "systemd-run --quiet --unit foreign python3 -m http.server 8000")
    try:
        wait_for(lambda: ":8000" in lab.sh("lab-2", "ss -Htln"))
        done = deploy(lab.folder(tmp_path, {"lab-1": {}, "lab-2": serving(lab)}))
    finally:
        lab.sh("lab-2", "systemctl stop foreign")
    line = done.problem("lab-2")
    assert done.code == 3 and done.state("lab-1") == HELD, done.output
    assert "port 8000 is taken by foreign.service" in line and "[GF604 port-taken]" in line
    assert done.state("lab-2") == "refused"
    untouched(lab, "lab-2")


def test_missing_packages_where_apt_is_the_owners(lab: SmallLab, tmp_path: Path) -> None:
    host = {"toolkit": "none", "install_packages": False}
    done = deploy(lab.folder(tmp_path, {"lab-1": {}, "lab-2": serving(lab, host=host)}))
    line = done.problem("lab-2")
    assert done.code == 3 and done.state("lab-1") == HELD, done.output
    assert "g++" in line and "libnuma1" in line and "[GF602 packages-missing]" in line
    untouched(lab, "lab-2")


def test_a_refused_box_that_is_left_out(lab: SmallLab, tmp_path: Path) -> None:
    data = serving(lab, host={"toolkit": "none", "install_packages": False}, rollout={"on_refusal": "leave out"})
    done = deploy(lab.folder(tmp_path, {"lab-1": {}, "lab-2": data}))
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert "[GF602 packages-missing]" in done.problem("lab-2") and done.state("lab-2") == "refused"
    untouched(lab, "lab-2")


def test_a_package_that_apt_does_not_know(lab: SmallLab, tmp_path: Path) -> None:
    source = "/etc/apt/sources.list.d/debian.sources"
    lab.sh("lab-2", f"mv {source} /root/ && rm -rf /var/lib/apt/lists/*")
    try:
        done = deploy(lab.folder(tmp_path, {"lab-1": {}, "lab-2": serving(lab)}))
    finally:
        lab.sh("lab-2", f"mv /root/debian.sources {source}")
    line = done.problem("lab-2")
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert "apt knows no package" in line and "g++" in line and "libnuma1" in line
    untouched(lab, "lab-2", left="journal.jsonl")  # which tells of the lock
    assert lab.sh("lab-2", "grep -vc locked /var/lib/gpufleet/journal.jsonl", code=1) == "0"


def test_another_key_than_nvidias(lab: SmallLab, tmp_path: Path) -> None:
    wrong = "0123456789ABCDEF" * 2 + "01234567"
    mirrors = lab.mirrors(cuda_key_fingerprint=wrong)
    done = deploy(lab.folder(tmp_path, {"lab-1": {}, "lab-3": {**TOOLKIT, "mirrors": mirrors}}))
    line = done.problem("lab-3")
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert wrong in line and state.load(lab.where).cuda_key_fingerprint in line
    assert lab.sh("lab-3", "ls /etc/apt/sources.list.d /etc/apt/keyrings | grep -i cuda || :") == ""


# Half done


def test_a_power_cut_while_dpkg_works(lab: SmallLab, tmp_path: Path) -> None:
    folder = lab.folder(tmp_path, {"lab-1": {}, "lab-3": {**TOOLKIT, "ssh_user": "opspw"}})
    toolkit = lab.where.boxes / "lab-3" / "upper" / "usr/local/cuda-13.0"
    with started(folder, GPUFLEET_SUDO_PASSWORD=SUDO_PASSWORD) as running:
        try:
            wait_for(lambda: running.poll() is not None or (toolkit.is_dir() and any(toolkit.rglob("*.dpkg-new"))))
            lab("kill", "lab-3")
            output, _ = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 1, output
    lines = [line for line in output.splitlines() if line.startswith("lab-3: ")]
    assert len(lines) == 1 and "connection broke off" in lines[0] and "deploy again" in lines[0], output
    lab("start", "lab-3")
    assert "install ok installed" not in lab.sh("lab-3", "dpkg-query -Wf '${Status}' cuda-toolkit-13-0 || :")
    done = deploy(folder, GPUFLEET_SUDO_PASSWORD=SUDO_PASSWORD)
    assert done.code == 0 and done.state("lab-3") == "changed", done.output
    assert "release 13.0" in lab.sh("lab-3", "/usr/local/cuda-13.0/bin/nvcc --version")
    assert lab.sh("lab-3", "dpkg --audit") == ""
    again = deploy(folder, GPUFLEET_SUDO_PASSWORD=SUDO_PASSWORD)
    assert again.code == 0 and again.state("lab-3") == "nothing to do", again.output


def test_two_deploys_at_once(lab: SmallLab, tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder, user in zip(folders, ("root", "ops"), strict=True):
        folder.mkdir()
        lab.folder(folder, {"lab-4": {**TOOLKIT, "ssh_user": user}})
    runs = [started(folder) for folder in folders]
    try:
        outputs = [run.communicate(timeout=120)[0] for run in runs]
    finally:
        for run in runs:
            run.kill()
            run.wait()
    assert sorted(run.returncode for run in runs) == [0, 4], outputs
    assert sum("lab-4 is locked by another deploy, and no box was changed" in output for output in outputs) == 1, (
        outputs
    )
    assert "release 13.0" in lab.sh("lab-4", "/usr/local/cuda-13.0/bin/nvcc --version")
