"""Boxes that are only an SSH server on loopback: each has a port and facts, and answers the look with them.

Everything on the controller's side is real: pyinfra's own command, its connections, our operations.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko

from benchmarks.delay import Count, Talk
from hostkit.errors import Failure
from tests.command import owners_folder

PASSWORD = "any"
LOOPBACK = "127.0.0.1"
INVENTORY = "from gpufleet.inventory import by_traits\nboxes = {boxes!r}\nglobals().update(by_traits(boxes))\n"
AGAIN = b'{"event": "again"}\n'
READY = b'{"event": "ready"}\n'
END = b'{"event": "end", "said": "", "status": 0}\n'
# A box's kit: (box, verb, spec) → the result of the verb. Raises Failure.
Kit = Callable[[str, str, dict[str, Any]], dict[str, Any]]
IDLE = {"stack": "vllm-0.27.1-cpu", "serve": [], "host": {"toolkit": "none"}}


@dataclass
class Boxes:
    """`facts` by box; what is changed there shows in the next look. `logins` and `looks` count, by box.

    + wire: what went over each box's connections, and how often the talk turned
    + subsystems: (box, name) of each that was asked for, such as sftp
    + kit: answers every verb but the look; without it:
    + answers: the events that a verb says, by verb (without any it says nothing and goes on)
    + asked: (box, verb) of each call; scripts: of the last look at each box
    + upgraded: boxes whose process of the kit does not answer the next question
    + at_once: how many sessions a connection may have (MaxSessions of sshd)
    + processes: the box of each process of the kit, which answers one call or many
    """

    key: paramiko.PKey
    facts: dict[str, dict[str, Any]]
    ports: dict[str, int] = field(default_factory=dict)
    off: set[str] = field(default_factory=set)
    hung: set[str] = field(default_factory=set)
    upgraded: set[str] = field(default_factory=set)
    at_once: int = 10
    logins: dict[str, int] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    wire: dict[str, Count] = field(default_factory=dict)
    subsystems: list[tuple[str, str]] = field(default_factory=list)
    kit: Kit | None = None
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    scripts: dict[str, str] = field(default_factory=dict)

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
            # so that the ssh config of whoever runs the tests has no say
            "ssh_config_file": os.devnull,
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


class _Heard:
    """A box's end of a connection, which counts."""

    def __init__(self, end: socket.socket, count: Count) -> None:
        count.connections += 1
        self._end, self._talk = end, Talk(count, asked=True)

    def recv(self, size: int) -> bytes:
        block = self._end.recv(size)
        self._talk.said(len(block), True)
        return block

    def send(self, data: bytes) -> int:
        sent = self._end.send(data)
        self._talk.said(sent, False)
        return sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._end, name)


class _Server(paramiko.ServerInterface):
    def __init__(self, boxes: Boxes, name: str) -> None:
        self.boxes, self.name = boxes, name
        self.open = 0

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        if password != PASSWORD:
            return paramiko.AUTH_FAILED
        self.boxes.logins[self.name] = self.boxes.logins.get(self.name, 0) + 1
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if self.open >= self.boxes.at_once:
            return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        self.open += 1
        return paramiko.OPEN_SUCCEEDED

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        self.boxes.subsystems.append((self.name, name))
        self.open -= 1
        return False

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._answer, args=(channel, command.decode()), daemon=True).start()
        return True

    def _answer(self, channel: paramiko.Channel, command: str) -> None:
        verb = re.search(r"\.pyz'? +'?([a-z-]+)", command) if "GPUFLEET:AS" not in command else None
        if verb:
            self.boxes.processes.append(self.name)
        try:
            if verb and verb[1] == "questions":
                self._answer_many(channel, sudo="sudo -S" in command)
                return
            spec = b"".join(iter(lambda: channel.recv(1024), b""))  # until the controller has said all
            text = self._said(verb[1], json.loads(spec)) if verb else self._looked(command + spec.decode())
            if text is not None:
                channel.sendall(f"{text}\n".encode())
                _close(channel, 0)
        except (OSError, paramiko.SSHException, EOFError):
            pass
        finally:
            self.open -= 1

    def _answer_many(self, channel: paramiko.Channel, sudo: bool) -> None:
        questions = channel.makefile("rb")
        if sudo and questions.readline().decode() != f"{PASSWORD}\n":
            questions.read()  # another try, and another
            channel.sendall_stderr(b"sudo: no password was provided\nsudo: 1 incorrect password attempt\n")
            _close(channel, 1)
            return
        channel.sendall(READY)
        for line in questions:
            question = json.loads(line)
            if self.name in self.boxes.upgraded:
                self.boxes.upgraded.discard(self.name)
                channel.sendall(AGAIN)
                break
            if (text := self._said(question["verb"], question["spec"])) is None:
                return
            channel.sendall(f"{text}\n".encode() + END)
        _close(channel, 0)

    def _looked(self, script: str) -> str | None:
        self.boxes.looks[self.name] = self.boxes.looks.get(self.name, 0) + 1
        self.boxes.scripts[self.name] = script
        return f"GPUFLEET:AS:\n{self._look()}" if self.name not in self.boxes.hung else None

    def _said(self, verb: str, spec: dict[str, Any]) -> str | None:
        self.boxes.asked.append((self.name, verb))
        known = self.boxes.kit or verb in {*self.boxes.answers, "lock"}
        return self._verb(verb, spec) if known and self.name not in self.boxes.hung else None

    def _look(self) -> str:
        return json.dumps({"event": "result", "facts": self.boxes.facts[self.name]})

    def _verb(self, verb: str, spec: dict[str, Any]) -> str:
        if not self.boxes.kit and verb == "lock":  # which nobody else has
            return json.dumps({"event": "result", "held": True, "lock": {"id": spec["id"]}})
        if not self.boxes.kit:
            return "\n".join(json.dumps(event) for event in self.boxes.answers[verb])
        try:
            return json.dumps({"event": "result", **self.boxes.kit(self.name, verb, spec)})
        except Failure as failure:
            return json.dumps({"event": "error", "cause": failure.cause, "remedy": failure.remedy})
        except Exception as error:  # else the controller would wait for ever, and nobody see why
            return json.dumps({"event": "error", "cause": f"the stand-in of the kit: {error!r}", "remedy": "mend it"})


def _close(channel: paramiko.Channel, status: int) -> None:
    channel.send_exit_status(status)
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
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as sshd does
            transport = paramiko.Transport(_Heard(client, found.wire.setdefault(name, Count())))  # type: ignore[arg-type]
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
