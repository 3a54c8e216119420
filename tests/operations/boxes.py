"""Boxes that are only an SSH server on loopback: each has a port and facts, and answers the look with them.

Everything on the controller's side is real: pyinfra's own command, its connections, our operations.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko

from tests.command import owners_folder

PASSWORD = "any"
LOOPBACK = "127.0.0.1"
INVENTORY = "from gpufleet.inventory import by_traits\nboxes = {boxes!r}\nglobals().update(by_traits(boxes))\n"
IDLE = {"stack": "vllm-0.27.1-cpu", "serve": [], "host": {"toolkit": "none"}}


@dataclass
class Boxes:
    """`facts` by box; what is changed there shows in the next look. `logins` counts, by box.

    `answers`: the events that another verb of the kit says, by verb (without any it says nothing and goes on);
    `asked`: (box, verb) of each call.
    """

    key: paramiko.PKey
    facts: dict[str, dict[str, Any]]
    ports: dict[str, int] = field(default_factory=dict)
    off: set[str] = field(default_factory=set)
    hung: set[str] = field(default_factory=set)
    logins: dict[str, int] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def folder(self, path: Path, **data: Mapping[str, Any]) -> Path:
        """An owner's folder with all of them; `data` by box name with _ for -."""
        hosts = path / "known_hosts"
        hosts.write_text(
            "".join(
                f"[{LOOPBACK}]:{port} {self.key.get_name()} {self.key.get_base64()}\n" for port in self.ports.values()
            )
        )
        login = {
            "ssh_user": "root",
            "ssh_password": PASSWORD,
            "ssh_allow_agent": False,
            "ssh_look_for_keys": False,
            "ssh_known_hosts_file": str(hosts),
            # a file of its own, so that the ssh config of whoever runs the tests has no say
            "ssh_config_file": str(path / "no-config"),
        }
        boxes = [
            (
                name,
                {"ssh_hostname": LOOPBACK, "ssh_port": port, **login, **IDLE, **data.get(name.replace("-", "_"), {})},
            )
            for name, port in self.ports.items()
        ]
        return owners_folder(path, INVENTORY.format(boxes=boxes))

    def cached(self, folder: Path, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((folder / "inventory/facts/home" / f"{name}.json").read_text())
        return found


class _Server(paramiko.ServerInterface):
    def __init__(self, boxes: Boxes, name: str) -> None:
        self.boxes, self.name = boxes, name

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        if password != PASSWORD:
            return paramiko.AUTH_FAILED
        self.boxes.logins[self.name] = self.boxes.logins.get(self.name, 0) + 1
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._answer, args=(channel, command.decode()), daemon=True).start()
        return True

    def _answer(self, channel: paramiko.Channel, command: str) -> None:
        """The only command of a run with nothing to do is the look."""
        named = re.search(r"\.pyz'? +'?([a-z]+)", command)
        verb = named[1] if named else "probe"
        if verb == "probe":
            self.boxes.looks[self.name] = self.boxes.looks.get(self.name, 0) + 1
            result = {"event": "result", "facts": self.boxes.facts[self.name]}
            said = f"GPUFLEET:AS:\n{json.dumps(result)}\n"
        else:
            self.boxes.asked.append((self.name, verb))
            if verb not in self.boxes.answers:
                return
            said = "".join(json.dumps(event) + "\n" for event in self.boxes.answers[verb])
        with contextlib.suppress(OSError, paramiko.SSHException, EOFError):
            while channel.recv(1024):  # until the controller has its reply to the request, and has said all
                pass
            if self.name in self.boxes.hung:
                return
            channel.sendall(said.encode())
            channel.send_exit_status(0)
            channel.close()


@contextlib.contextmanager
def boxes(facts: Mapping[str, dict[str, Any]]) -> Iterator[Boxes]:
    """Serve boxes with these facts while the block runs; one in `off` breaks off, one in `hung` is silent."""
    found = Boxes(paramiko.ECDSAKey.generate(), dict(facts))
    listeners = {name: socket.create_server((LOOPBACK, 0)) for name in facts}
    found.ports = {name: listener.getsockname()[1] for name, listener in listeners.items()}
    transports: list[paramiko.Transport] = []

    def serve(name: str, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if name in found.off:
                client.close()
                continue
            transport = paramiko.Transport(client)
            transports.append(transport)
            transport.add_server_key(found.key)
            with contextlib.suppress(paramiko.SSHException, EOFError):
                transport.start_server(threading.Event(), _Server(found, name))

    threads = [threading.Thread(target=serve, args=item, daemon=True) for item in listeners.items()]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        for listener in listeners.values():
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for thread in threads:
            thread.join(10)
        for transport in transports:
            transport.close()
