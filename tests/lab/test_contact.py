"""First contact and logins on real boxes: host keys, sudo and its password; the other box finishes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import state
from lab.base import SUDO_PASSWORD
from tests.lab.support import SmallLab, command_lines, deploy, deploy_in_terminal, small_lab

pytestmark = pytest.mark.lab
TRUST = "[y/N]"
ASKS = "sudo password (for all boxes that ask):"


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    """lab-1 is never harmed: it is the other box, which has to finish."""
    with small_lab("logn", 78, ["cpu-only", "cpu-only"]) as fresh:
        yield fresh


# First contact


def fingerprint(lab: SmallLab, box: str) -> str:
    shown = subprocess.run(
        ["ssh-keygen", "-lf", "-"], input=lab.host_key(box), capture_output=True, text=True, check=True
    )
    return shown.stdout.split()[1]


def test_unknown_host_keys_without_a_terminal(lab: SmallLab, tmp_path: Path) -> None:
    hosts = tmp_path / "known_hosts"
    hosts.touch()
    folder = lab.folder(tmp_path, {name: {"ssh_known_hosts_file": str(hosts)} for name in ("lab-1", "lab-2")})
    done = deploy(folder)
    assert done.code == 2, done.output
    lines = [line for line in done.output.splitlines() if line.startswith("gpufleet: ")]
    assert len(lines) == 2
    for line, box in zip(lines, ("lab-1", "lab-2"), strict=True):
        assert f"{box} (" in line and f"ssh-ed25519 {fingerprint(lab, box)}" in line and "in a terminal" in line
        assert lab.sh(box, "ls /opt") == ""
    assert hosts.read_text() == ""


def test_unknown_host_keys_are_asked_for_once(lab: SmallLab, tmp_path: Path) -> None:
    hosts = tmp_path / "new" / "known_hosts"
    folder = lab.folder(tmp_path, {name: {"ssh_known_hosts_file": str(hosts)} for name in ("lab-1", "lab-2")})
    done, asked = deploy_in_terminal(folder, TRUST, "n")
    assert (done.code, asked) == (2, 1), done.output
    assert all(fingerprint(lab, box) in done.output for box in ("lab-1", "lab-2"))
    assert not hosts.exists()
    assert lab.sh("lab-1", "ls /opt") == ""
    done, asked = deploy_in_terminal(folder, TRUST, "y")
    assert (done.code, asked) == (0, 1), done.output
    assert done.state("lab-1") == done.state("lab-2") == "nothing to do"
    assert sorted(line.split(" ", 1)[1] for line in hosts.read_text().splitlines()) == sorted(
        lab.host_key(box) for box in ("lab-1", "lab-2")
    )
    again = deploy(folder)
    assert again.code == 0, again.output


def test_a_changed_host_key(lab: SmallLab, tmp_path: Path) -> None:
    hosts = tmp_path / "known_hosts"
    addresses = {box.name: box.address for box in state.load(lab.where).boxes}
    hosts.write_text("".join(f"{addresses[box]} {lab.host_key('lab-1')}\n" for box in ("lab-1", "lab-2")))
    folder = lab.folder(tmp_path, {name: {"ssh_known_hosts_file": str(hosts)} for name in ("lab-1", "lab-2")})
    done = deploy(folder)
    line = done.problem("lab-2")
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert "does not match" in line and f"ssh-keygen -R {addresses['lab-2']} -f {hosts}" in line


# Logins


def clean(lab: SmallLab, box: str) -> None:
    lab.sh(box, "rm -rf /opt/gpufleet")


def nowhere(lab: SmallLab, box: str, output: str, seen: set[str]) -> None:
    """The password is in no command line, no output, no file and no log."""
    assert any("sudo -S" in line for line in seen), "the watch saw nothing"
    assert not [line for line in seen if SUDO_PASSWORD in line]
    assert SUDO_PASSWORD not in output
    assert lab.sh(box, f"grep -rl {SUDO_PASSWORD} /opt /var/lib/gpufleet /var/log /tmp /run/log 2>/dev/null || :") == ""
    assert lab.sh(box, f"journalctl -o cat | grep -c {SUDO_PASSWORD} || :") == "0"


def test_a_login_with_sudo(lab: SmallLab, tmp_path: Path) -> None:
    clean(lab, "lab-2")
    lab.sh("lab-2", "sed -i '1i umask 077' /home/ops/.bashrc")
    done = deploy(lab.folder(tmp_path, {"lab-1": {}, "lab-2": {"ssh_user": "ops"}}))
    assert done.code == 0 and done.state("lab-2") == "nothing to do", done.output
    assert lab.sh("lab-2", "ls /opt/gpufleet/kit") != ""
    assert lab.sh("lab-2", "find /opt/gpufleet ! -user root") == ""


def test_a_sudo_password_from_the_environment(lab: SmallLab, tmp_path: Path) -> None:
    clean(lab, "lab-2")
    folder = lab.folder(tmp_path, {"lab-1": {}, "lab-2": {"ssh_user": "opspw"}})
    with command_lines() as seen:
        done = deploy(folder, GPUFLEET_SUDO_PASSWORD=SUDO_PASSWORD)
    assert done.code == 0 and done.state("lab-2") == "nothing to do", done.output
    assert lab.sh("lab-2", "find /opt/gpufleet ! -user root") == ""
    nowhere(lab, "lab-2", done.output, seen())


def test_a_sudo_password_is_asked_for_once(lab: SmallLab, tmp_path: Path) -> None:
    clean(lab, "lab-2")
    folder = lab.folder(tmp_path, {"lab-1": {"ssh_user": "opspw"}, "lab-2": {"ssh_user": "opspw"}})
    with command_lines() as seen:
        done, asked = deploy_in_terminal(folder, ASKS, SUDO_PASSWORD)
    assert (done.code, asked) == (0, 1), done.output
    assert done.state("lab-1") == done.state("lab-2") == "nothing to do"
    nowhere(lab, "lab-2", done.output, seen())


def test_a_wrong_sudo_password_is_tried_once(lab: SmallLab, tmp_path: Path) -> None:
    folder = lab.folder(tmp_path, {"lab-1": {}, "lab-2": {"ssh_user": "opspw"}})
    done = deploy(folder, GPUFLEET_SUDO_PASSWORD="quite-wrong")
    line = done.problem("lab-2")
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert "does not accept the password" in line and "GPUFLEET_SUDO_PASSWORD" in line
    # more tries with one password lock accounts (pam_faillock)
    assert (
        lab.sh("lab-2", "journalctl -t sudo -o cat | grep -o '[0-9]* incorrect password attempt.*' | cut -d' ' -f1")
        == "1"
    )
    assert "quite-wrong" not in done.output


def test_a_sudo_password_that_nobody_can_give(lab: SmallLab, tmp_path: Path) -> None:
    done = deploy(lab.folder(tmp_path, {"lab-1": {}, "lab-2": {"ssh_user": "opspw"}}))
    line = done.problem("lab-2")
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert "sudo asks for a password" in line and "GPUFLEET_SUDO_PASSWORD" in line


def test_a_user_without_sudo_rights(lab: SmallLab, tmp_path: Path) -> None:
    lab.sh(
        "lab-2",
        f"useradd --create-home --shell /bin/bash plain && printf 'plain:{SUDO_PASSWORD}' | chpasswd"
        " && cp -a /home/ops/.ssh /home/plain/ && chown -R plain: /home/plain",
    )
    folder = lab.folder(tmp_path, {"lab-1": {}, "lab-2": {"ssh_user": "plain"}})
    done = deploy(folder, GPUFLEET_SUDO_PASSWORD=SUDO_PASSWORD)
    line = done.problem("lab-2")
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert "plain may not use sudo" in line and "/etc/sudoers" in line
    assert len(line) < 250, line


def test_a_box_without_sudo(lab: SmallLab, tmp_path: Path) -> None:
    lab.sh("lab-2", "mv /usr/bin/sudo /usr/bin/sudo.away")
    try:
        done = deploy(lab.folder(tmp_path, {"lab-1": {}, "lab-2": {"ssh_user": "ops"}}))
    finally:
        lab.sh("lab-2", "mv /usr/bin/sudo.away /usr/bin/sudo")
    line = done.problem("lab-2")
    assert done.code == 1 and done.state("lab-1") == "nothing to do", done.output
    assert "ops is not root and there is no sudo" in line
