"""Boxes that cannot be reached: one line each that says what to look at, whichever command asks, and no traceback."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paramiko import AuthenticationException, SSHException
from paramiko.ssh_exception import NoValidConnectionsError

from operations.unreachable import cause, login, place, remedy
from tests.command import GPUFLEET, owners_folder, run

COMMANDS = [("doctor",), ("discover",), ("status",), ("deploy", "-y")]


@contextmanager
def listener(answer: bytes | None) -> Iterator[int]:
    """The port of something that is no sshd. + answer: what it says before it closes; None: it never says anything"""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                if answer is None:
                    kept.append(connection)
                    continue
                with connection:
                    connection.recv(64)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in kept:
                connection.close()


def fleet(folder: Path, **data: Any) -> Path:
    """A folder of one box, and a home for its user, without a file of ssh."""
    (folder / "home").mkdir()
    given = {"ssh_hostname": "127.0.0.1", "serve": ["qwen3-0.6b"], **data}
    text = (
        f"from gpufleet.inventory import by_traits\nboxes = [('hole', {given!r})]\nglobals().update(by_traits(boxes))\n"
    )
    return owners_folder(folder, text)


def said(folder: Path, command: tuple[str, ...]) -> tuple[int, str]:
    name, *options = command
    done = run(folder, name, "inventory/home.py", *options, program=GPUFLEET, HOME=str(folder / "home"), COLUMNS="400")
    assert "Traceback" not in done.stdout and "Exception" not in done.stdout, done.stdout
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("answer", "command"),
    [*((b"", command) for command in COMMANDS), (b"HTTP/1.1 400 Bad Request\r\n\r\n", ("doctor",))],
)
def test_a_port_that_does_not_speak_ssh(tmp_path: Path, answer: bytes, command: tuple[str, ...]) -> None:
    with listener(answer) as port:
        code, text = said(fleet(tmp_path, ssh_port=port), command)
    assert code == 1 and f"something listens on 127.0.0.1:{port} and does not speak SSH" in text, text
    assert f"heck ssh_port, and that `ssh -p {port} 127.0.0.1` works" in text
    assert "known_hosts" not in text and "banner" not in text


def test_an_sshd_that_hangs(tmp_path: Path) -> None:
    with listener(None) as port:
        code, text = said(fleet(tmp_path, ssh_port=port), ("deploy", "-y"))
    assert code == 1 and f"something listens on 127.0.0.1:{port} and does not speak SSH (no answer)" in text, text


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_port_that_nothing_listens_on(tmp_path: Path, command: tuple[str, ...]) -> None:
    code, text = said(fleet(tmp_path, ssh_port=9, ssh_user="me"), command)
    assert code == 1 and "Could not connect to 127.0.0.1:9: connection refused" in text, text
    assert "heck that it is on, and that `ssh -p 9 me@127.0.0.1` works" in text and "Errno" not in text


@pytest.mark.parametrize("known", [False, True])
def test_pyinfras_own_try_is_told_alike(tmp_path: Path, known: bool) -> None:
    """A box whose key is known is asked by pyinfra alone."""
    with listener(b"") as port:
        folder = fleet(
            tmp_path, ssh_port=port, **({} if known else {"ssh_connect_retries": 1, "ssh_connect_retry_min_delay": 0})
        )
        if known:
            (folder / "home" / ".ssh").mkdir()
            key = "AAAAC3NzaC1lZDI1NTE5AAAAIIDMIxHdZ9Ye4kPTlRjgUSKGcE3ZBLjyKzGQ9vqkUrVx"
            (folder / "home" / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} ssh-ed25519 {key}\n")
        code, text = said(folder, ("deploy", "-y"))
    assert code == 1 and f"hole: something listens on 127.0.0.1:{port} and does not speak SSH" in text, text
    assert "banner" not in text and "Failed to load host keys" not in text


@pytest.mark.parametrize(
    ("which", "command"),
    [*(("users", command) for command in COMMANDS), ("own", ("doctor",)), ("included", ("deploy", "-y"))],
)
def test_an_ssh_config_that_is_not_utf8(tmp_path: Path, which: str, command: tuple[str, ...]) -> None:
    config = tmp_path / "home" / ".ssh" / "config"
    folder = fleet(tmp_path, **({"ssh_config_file": "~/.ssh/own"} if which == "own" else {}))
    config.parent.mkdir()
    wrong = {"users": config, "own": config.with_name("own"), "included": config.with_name("more")}[which]
    config.write_text("Include more\n" if which == "included" else "")
    wrong.write_bytes(b"Host *\n  # caf\xe9\n")
    code, text = said(folder, command)
    assert code == 2, text
    assert f"gpufleet: {wrong}: line 2 is not UTF-8; write it anew in UTF-8" in text


@pytest.mark.parametrize("command", [("deploy", "-y"), ("doctor",)])
def test_an_ssh_config_of_its_own_that_is_not_there(tmp_path: Path, command: tuple[str, ...]) -> None:
    folder = fleet(tmp_path, ssh_config_file="~/.ssh/own")
    code, text = said(folder, command)
    assert code == 2, text
    assert f"gpufleet: hole: ssh_config_file is {folder}/home/.ssh/own, which is not there; correct it" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "config cannot be read: Is a directory; let your user read it"),
        ("Host *\n  Port\n", "config: line 2 cannot be read: 'Port'; mend or remove it"),
        ("Include config\n", "config, which was read already; take one of the lines out"),
        ("Host *\n  Port 99999\n", "the Port of hole is 99999; it must be 1 to 65535"),
        ("Host *\n  Port ssh\n", "what it says of hole cannot be: invalid literal"),
    ],
)
def test_an_ssh_config_that_cannot_be(tmp_path: Path, text: str | None, says: str) -> None:
    folder = fleet(tmp_path)
    config = folder / "home" / ".ssh" / "config"
    if text is None:
        config.mkdir(parents=True)
    else:
        config.parent.mkdir()
        config.write_text(text)
    code, told = said(folder, ("doctor",))
    assert code == 2 and says in told and ".ssh/config" in told, told


@pytest.mark.parametrize(
    ("data", "command"),
    [
        ({}, "ssh hole"),
        ({"ssh_hostname": "192.0.2.1", "ssh_port": 22}, "ssh 192.0.2.1"),
        ({"ssh_hostname": "192.0.2.1", "ssh_user": "me"}, "ssh me@192.0.2.1"),
        ({"ssh_port": 9, "ssh_key": "/keys/my key"}, "ssh -p 9 -i '/keys/my key' hole"),
        ({"ssh_config_file": "/x/config", "ssh_user": "d\\me"}, "ssh -F /x/config 'd\\me@hole'"),
    ],
)
def test_the_command_that_logs_in(data: dict[str, Any], command: str) -> None:
    assert login("hole", data) == command
    for why in ("Could not connect to x: timed out", "Authentication error (username=me)"):
        assert f"`{command}` works" in remedy("hole", data, why)


def client(version: str = "", **config: Any) -> Any:
    """pyinfra's, after an error; `version` is what sshd said of itself."""
    return SimpleNamespace(get_transport=lambda: SimpleNamespace(remote_version=version), _ssh_config=config)


BANNER = SSHException("Error reading SSH protocol banner[Errno 104] Connection reset by peer")
REFUSED = NoValidConnectionsError(
    {("::1", 9, 0, 0): OSError(errno.ECONNREFUSED, "x"), ("127.0.0.1", 9): OSError(errno.EHOSTUNREACH, "x")}
)


@pytest.mark.parametrize(
    ("error", "of", "says"),
    [
        (BANNER, client(), "something listens on b:9 and does not speak SSH"),
        (BANNER, client(sock=object()), "no SSH comes from b:9 by way of the ProxyCommand or ProxyJump"),
        (SSHException("No existing session"), client("SSH-2.0-x"), "broke the connection off before the login"),
        (EOFError(), client("SSH-2.0-x"), "broke the connection off before the login"),
        (REFUSED, client(), "Could not connect to [::1]:9, 127.0.0.1:9: connection refused, no route to host"),
        (TimeoutError("timed out"), None, "Could not connect to b:9: timed out"),
        (OSError(errno.ENETUNREACH, "x"), None, "Could not connect to b:9: network is unreachable"),
        (
            socket.gaierror(-2, "Name or service not known"),
            None,
            "Could not resolve hostname (Name or service not known)",
        ),
    ],
)
def test_the_words_for_an_error(error: BaseException, of: Any, says: str) -> None:
    assert says in cause(error, place("b", 9), of)


@pytest.mark.parametrize(
    "error", [AuthenticationException("no"), SSHException("StrictPolicy: No host key"), ValueError()]
)
def test_other_errors_keep_pyinfras_words(error: BaseException) -> None:
    assert cause(error, place("2001:db8::7", 22), client("SSH-2.0-x")) == ""
