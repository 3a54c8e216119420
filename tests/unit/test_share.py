"""Where a box offers its store to others, and that only the controller is told the token."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostkit import share
from hostkit.errors import Failure


@pytest.mark.parametrize(
    ("connection", "address"),
    [
        ("192.0.2.9 50000 192.0.2.11 22", "192.0.2.11"),
        ("2001:db8::9 50000 2001:db8::11 22", "2001:db8::11"),
        ("127.0.0.1 50000 127.0.0.1 22", None),
        ("::1 50000 ::1 22", None),
        ("fe80::9%eth0 50000 fe80::11%eth0 22", None),
        ("", None),
    ],
)
def test_it_listens_where_the_controller_came_in(
    connection: str, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "ssh_connection", lambda: connection)
    assert share.contacted() == address


def test_the_address_is_found_through_sudo() -> None:
    """sudo takes the variable away: it is looked for in the processes above."""
    command = [sys.executable, "-c", "from hostkit import share; print(share.ssh_connection())"]
    inner = ["env", "-u", "SSH_CONNECTION", *command]
    environment = {**os.environ, "SSH_CONNECTION": "192.0.2.9 1 192.0.2.11 22"}
    outer = ["sh", "-c", '"$@"; :', "sh", *inner]
    done = subprocess.run(outer, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "192.0.2.9 1 192.0.2.11 22\n"


def test_the_token_is_root_s_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in no command line; the file it is in is made for systemd, and the answer is for the controller."""
    ran: list[list[str]] = []
    state = {"active": "inactive"}
    monkeypatch.setattr(share, "SECRETS", str(tmp_path / "share.env"))
    monkeypatch.setattr(share, "PORT", str(tmp_path / "port"))
    monkeypatch.setattr(share, "LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(share, "contacted", lambda: "192.0.2.11")
    monkeypatch.setattr(share.systemd, "show", lambda unit: state)
    monkeypatch.setattr(share.systemd, "systemctl", lambda *words, allowed=False: "")

    def start(command: list[str], timeout: float) -> str:
        ran.append(command)
        (tmp_path / "port").write_text("7478")
        state["active"] = "active"
        return ""

    monkeypatch.setattr(share.shell, "run", start)
    first = share.run({})
    assert share.run({}) == first and len(ran) == 1
    assert first["port"] == 7478 and first["addresses"] == ["192.0.2.11"] and len(first["token"]) >= 32
    assert not [word for word in ran[0] if first["token"] in word]
    assert (tmp_path / "share.env").stat().st_mode & 0o777 == 0o600
    state["active"] = "inactive"
    assert share.run({})["token"] != first["token"]


def test_a_server_that_does_not_start_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(share, "SECRETS", str(tmp_path / "share.env"))
    monkeypatch.setattr(share.systemd, "show", lambda unit: {"active": "inactive"})
    monkeypatch.setattr(share.systemd, "systemctl", lambda *words, allowed=False: "")
    monkeypatch.setattr(share.systemd, "log_since", lambda unit, began: ["Address already in use"])
    monkeypatch.setattr(share.shell, "run", lambda command, timeout: "")
    with pytest.raises(Failure, match="did not start: Address already in use"):
        share.run({})
