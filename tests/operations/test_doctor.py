"""`gpufleet doctor` on boxes whose shell is this machine's own: the kit runs there, from memory, and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest

from tests.command import GPUFLEET, run
from tests.operations import boxes as servers
from tests.operations.boxes import Boxes, boxes

SUDO = """#!/bin/sh
echo "sudo $*" >> {log}
if [ "$1" = -n ]; then {without}; shift; exec "$@"; fi
read -r given
[ "$given" = "{password}" ] || {{ echo "sudo: 1 incorrect password attempt" >&2; exit 1; }}
shift 4
exec "$@"
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Boxes]:
    """Two boxes that run what they are told in a shell; programs of `bin` come first."""
    (tmp_path / "bin").mkdir()

    def execute(self: servers._Server, channel: paramiko.Channel, command: str) -> None:
        stdin = b"".join(iter(lambda: channel.recv(1 << 16), b""))
        self.boxes.asked.append((self.name, command))
        path = f"{tmp_path}/bin/{self.name}:{os.environ['PATH']}"
        done = subprocess.run(["sh", "-c", command], input=stdin, capture_output=True, env={"PATH": path}, check=False)
        channel.sendall(b"Welcome\n" + done.stdout)
        channel.sendall_stderr(done.stderr)
        channel.send_exit_status(done.returncode)
        channel.close()

    monkeypatch.setattr(servers._Server, "_answer", execute)
    with boxes({"one": {}, "two": {}}) as found:
        yield found


def program(tmp_path: Path, box: str, name: str, text: str) -> None:
    path = tmp_path / "bin" / box / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def no_root(tmp_path: Path, box: str, without: str, password: str = "geheim") -> Path:
    """The login of this box is not root; `without`: what its sudo does without a password."""
    log = tmp_path / f"sudo-{box}.log"
    program(tmp_path, box, "id", "#!/bin/sh\necho 1000\n")
    program(tmp_path, box, "sudo", SUDO.format(log=log, without=without, password=password))
    return log


def checks(text: str) -> dict[str, dict[str, dict[str, Any]]]:
    page = json.loads(text)
    return {box["name"]: {line["check"]: line for line in box["checks"]} for box in page["boxes"]}


def left_behind() -> set[str]:
    folders = ("/opt/gpufleet", "/var/lib/gpufleet", "/run/gpufleet", "/tmp", "/run")
    return {
        f"{folder}/{name}"
        for folder in folders
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if "gpufleet" in name
    }


def test_each_step_is_told_and_nothing_is_left(shell: Boxes, tmp_path: Path) -> None:
    no_root(tmp_path, "two", "true")
    folder, before = shell.folder(tmp_path), left_behind()
    done = run(folder, "doctor", "inventory/home.py", "--json", program=GPUFLEET)
    assert done.returncode in (0, 1, 3), done.stdout
    found = checks(done.stdout)
    for box in ("one", "two"):
        assert {"host key", "ssh", "root", "python", "clock", "apt"} <= set(found[box])
        assert [found[box][step]["level"] for step in ("host key", "ssh", "root", "python")] == ["ok"] * 4
    assert found["one"]["root"]["cause"] == "logged in as root"
    assert found["two"]["root"]["cause"] == "sudo without a password"
    assert re.fullmatch(r"python 3\.\d+", found["one"]["python"]["cause"])
    assert left_behind() == before
    assert not any("/opt/gpufleet" in command for _, command in shell.asked)
    assert not (folder / "inventory/facts").exists()


def test_a_password_for_sudo_is_used_and_a_wrong_one_tried_once(shell: Boxes, tmp_path: Path) -> None:
    asks = "echo 'sudo: a password is required' >&2; exit 1"
    no_root(tmp_path, "one", asks)
    log = no_root(tmp_path, "two", asks, password="anders")
    folder = shell.folder(tmp_path)
    without = run(folder, "doctor", "inventory/home.py", program=GPUFLEET)
    assert without.returncode == 1 and "one: error: root: sudo asks for a password." in without.stdout
    assert "GPUFLEET_SUDO_PASSWORD" in without.stdout
    log.unlink()
    done = run(folder, "doctor", "inventory/home.py", "--json", program=GPUFLEET, GPUFLEET_SUDO_PASSWORD="geheim")
    found = checks(done.stdout)
    assert found["one"]["root"]["cause"] == "sudo with a password" and "apt" in found["one"]
    assert found["two"]["root"]["level"] == "error" and "does not accept the password" in found["two"]["root"]["cause"]
    assert [line.split()[1] for line in log.read_text().splitlines()] == ["-n", "-S"]
    assert "geheim" not in done.stdout and not any("geheim" in command for _, command in shell.asked)


@pytest.mark.parametrize(
    ("name", "text", "step", "said"),
    [
        ("python3", "#!/bin/sh\necho GPUFLEET:PYTHON:3.6\n", "python", "its python3 is 3.6"),
        ("sudo", "#!/bin/sh\necho 'anna is not in the sudoers file.' >&2; exit 1\n", "root", "may not use sudo"),
    ],
)
def test_a_step_that_fails_is_the_last(
    shell: Boxes, tmp_path: Path, name: str, text: str, step: str, said: str
) -> None:
    if name == "sudo":
        no_root(tmp_path, "one", "true")
    program(tmp_path, "one", name, text)
    done = run(shell.folder(tmp_path), "doctor", "inventory/home.py", "--limit", "one", "--json", program=GPUFLEET)
    found = checks(done.stdout)["one"]
    assert done.returncode == 1 and list(found)[-1] == step
    assert found[step]["level"] == "error" and said in found[step]["cause"] and found[step]["remedy"]


def test_a_box_that_is_off_and_one_whose_key_nobody_knows(shell: Boxes, tmp_path: Path) -> None:
    folder = shell.folder(tmp_path)
    shell.off.add("one")
    lines = (folder / "known_hosts").read_text().splitlines()
    kept = [line for line in lines if f":{shell.ports['two']} " not in line]
    (folder / "known_hosts").write_text("\n".join(kept) + "\n")
    done = run(folder, "doctor", "inventory/home.py", "--json", program=GPUFLEET)
    found = checks(done.stdout)
    assert done.returncode == 1
    assert list(found["one"]) == ["ssh"] and found["one"]["ssh"]["level"] == "error"
    assert list(found["two"]) == ["host key"] and "SHA256:" in found["two"]["host key"]["cause"]
    assert "ssh-keygen -lf" in found["two"]["host key"]["remedy"]
    assert (folder / "known_hosts").read_text() == "\n".join(kept) + "\n"


def test_settings_that_fit_no_box_are_2_and_a_wrong_name_too(shell: Boxes, tmp_path: Path) -> None:
    folder = shell.folder(tmp_path, one={"serve": ["qwen3-0.6b", {"model": "qwen3-0.6b"}]})
    done = run(folder, "doctor", "inventory/home.py", "--limit", "one", program=GPUFLEET)
    assert done.returncode == 2 and "one: error: settings: one: serve: two instances are called" in done.stdout
    assert "1 box: 1 with errors. Nothing was changed." in done.stdout
    wrong = run(folder, "doctor", "inventory/home.py", "--limit", "thre", program=GPUFLEET)
    assert wrong.returncode == 2 and "names no box and no group" in wrong.stdout
