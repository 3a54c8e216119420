"""SSH connections that answer at once: every one that pyinfra makes, jump hosts included."""

from __future__ import annotations

import socket
from typing import Any

from paramiko import Transport
from pyinfra.connectors.sshuserclient import SSHClient

SILENCE_MS = 60_000
_installed: list[bool] = []


class Prompt(Transport):
    """A transport that lets nothing wait in the kernel."""

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        if isinstance(self.sock, socket.socket):
            # paramiko never sets it: each question then waits some 40 ms for the acknowledgement of the one before.
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A box that lost its power sends nothing: without this the kernel tries for a quarter of an hour.
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)


def install() -> None:
    """From now on pyinfra's connections are such; also while they are made, which is most of what a run waits for."""
    if _installed:
        return
    _installed.append(True)
    original = SSHClient.connect

    def connect(self: SSHClient, hostname: str, *args: Any, **kwargs: Any) -> Any:
        return original(self, hostname, *args, **{"transport_factory": Prompt, **kwargs})

    SSHClient.connect = connect  # type: ignore[method-assign]
