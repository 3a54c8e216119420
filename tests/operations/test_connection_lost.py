"""A connection that goes away is said in one line of its box, at whatever moment paramiko notices."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paramiko import SSHException

from gpufleet.errors import BoxError
from gpufleet.wheelhouse.store import Store
from operations import remote_shell
from operations.taking import take

WHEEL = b"what a box has made"
MADE = {"filename": "pkg-1.0-py3-none-any.whl", "sha256": hashlib.sha256(WHEEL).hexdigest(), "size": len(WHEEL)}


class Fails:
    """Stands where paramiko's calls do; the one that is named raises."""

    def __init__(self, at: str, error: Exception, silent: bool) -> None:
        self.at, self.error, self.silent = at, error, silent

    def __call__(self, name: str) -> None:
        if name == self.at or (name == "close" and not self.silent):
            raise self.error


class Channel:
    """paramiko.Channel, of a command that prints a line and ends well."""

    def __init__(self, fails: Fails) -> None:
        self._fails = fails

    def settimeout(self, seconds: float | None) -> None:
        pass

    def exec_command(self, command: str) -> None:
        self._fails("exec_command")

    def sendall(self, block: bytes) -> None:
        self._fails("sendall")

    def shutdown_write(self) -> None:
        self._fails("shutdown_write")

    def makefile(self, mode: str) -> Iterator[bytes]:
        yield b"a line\n"
        self._fails("read")

    def makefile_stderr(self, mode: str) -> io.BytesIO:
        return io.BytesIO()

    def recv_exit_status(self) -> int:
        self._fails("recv_exit_status")
        return 0

    def get_transport(self) -> Any:
        return SimpleNamespace(is_active=lambda: False)

    def close(self) -> None:
        self._fails("close")


def host(fails: Fails) -> Any:
    def open_session() -> Channel:
        fails("open_session")
        return Channel(fails)

    keepalive = SimpleNamespace(_Packetizer__keepalive_interval=15)
    transport = SimpleNamespace(is_active=lambda: True, packetizer=keepalive, open_session=open_session)
    client = SimpleNamespace(get_transport=lambda: transport)
    return SimpleNamespace(name="box", connector=SimpleNamespace(client=client))


ERRORS = [EOFError(), SSHException("Channel closed."), BrokenPipeError(32, "Broken pipe"), TimeoutError()]
STEPS = ["open_session", "exec_command", "sendall", "shutdown_write", "read", "recv_exit_status"]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("silent", [True, False], ids=["closes", "fails to close"])
def test_it_is_one_line_of_the_box(step: str, error: Exception, silent: bool) -> None:
    with pytest.raises(BoxError, match=r"^box: the connection broke off( \(.+\))?\. Check the box and its network"):
        list(remote_shell.run(host(Fails(step, error, silent)), "true", [b"block"], None))


@pytest.mark.parametrize("step", ["sendall", "read", "recv_exit_status"])
def test_a_limit_of_silence_holds_to_the_end(step: str) -> None:
    with pytest.raises(BoxError, match=r"^box: no answer within 7 s\. See what the box is busy with"):
        list(remote_shell.run(host(Fails(step, TimeoutError(), silent=True)), "true", [b"block"], None, 7))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_command_that_ended_well_has_ended_well(error: Exception) -> None:
    """The connection went away after its exit status came: the next command says so."""
    assert list(remote_shell.run(host(Fails("close", error, silent=False)), "true", [], None)) == ["a line"]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("silent", [True, False], ids=["closes", "fails to close"])
def test_what_a_box_has_made_is_not_taken_by_halves(tmp_path: Path, error: Exception, silent: bool) -> None:
    store = Store(tmp_path)
    with pytest.raises(BoxError, match=r"^box: the connection broke off"):
        take(sftp_box(Fails("read", error, silent)), MADE, store, "pkg")
    assert not [file for file in tmp_path.rglob(MADE["filename"]) if file.is_file()]
    assert take(sftp_box(Fails("close", error, silent=False)), MADE, store, "pkg").sha256 == MADE["sha256"]


def test_a_disk_of_the_box_is_not_its_connection(tmp_path: Path) -> None:
    broken = sftp_box(Fails("read", OSError("Failure"), silent=True), active=True)
    with pytest.raises(BoxError, match=rf"^box: .*/{MADE['filename']} cannot be read \(Failure\)\. See to its disk"):
        take(broken, MADE, Store(tmp_path), "pkg")


def sftp_box(fails: Fails, active: bool = False) -> Any:
    class Handle(io.BytesIO):
        def prefetch(self) -> None:
            pass

        def read(self, size: int | None = -1, /) -> bytes:
            fails("read")
            return super().read(size)

    @contextmanager
    def open_sftp() -> Iterator[Any]:
        yield SimpleNamespace(open=lambda path, mode: Handle(WHEEL))
        fails("close")

    transport = SimpleNamespace(is_active=lambda: active)
    client = SimpleNamespace(open_sftp=open_sftp, get_transport=lambda: transport)
    return SimpleNamespace(host=SimpleNamespace(name="box", connector=SimpleNamespace(client=client)))
