"""Looking at boxes as a deploy would, step by step, and leaving nothing there: what each step told, or why it ended."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import operations.greenlets  # noqa: F401
import click
import pyinfra
from pyinfra.api import Config, Inventory, State
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host

from gpufleet.doctoring import Seen
from gpufleet.errors import INTERRUPTED, BoxError
from gpufleet.fleet import Fleet
from operations import become, contact, kit_in_memory, transport, wanted
from operations.unreachable import remedy
from operations.wanted import Wanted

AT_ONCE = 50
CALL_SECONDS = 60  # for HEAD requests, which have limits of their own


class Boxes:
    """+ seen: what is known of each box so far; + hosts: those with a connection that lives"""

    def __init__(self, fleet: Fleet, names: Sequence[str]) -> None:
        """Connect, become root, look; a box that fails keeps the reason. Ctrl-C ends the program with 130."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _interrupted)
        pyinfra.is_cli = True  # a key's password may be asked for
        for name in ("pyinfra", "paramiko"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        contact.keep_failures_apart()
        transport.install()
        self.fleet, self.seen = fleet, {name: Seen(name) for name in names}
        addresses = {name: fleet.addresses[name] for name in names}
        strangers, gone = contact.unknown(addresses)
        for stranger in strangers:
            self.seen[stranger.box].ended("host key", *_stranger(stranger))
        for name, cause in gone.items():
            self.seen[name].ended("ssh", cause, remedy(name, addresses[name], cause))
        state = State(Inventory(([(name, fleet.connection(name)) for name in names], {})), Config())
        state.cwd = str(Path.cwd())
        self.hosts: dict[str, Host] = {host.name: host for host in state.inventory}
        asked = wanted.of(fleet, {})
        self._each(dict.fromkeys(names), lambda host, _: self._look(host, asked))

    def ask(self, specs: Mapping[str, Mapping[str, Any]]) -> None:
        """The kit's verb `doctor` on these boxes, at once; the answers are in `seen`."""

        def asked(host: Host, spec: Mapping[str, Any]) -> None:
            self.seen[host.name].step = "network"
            self.seen[host.name].checks = kit_in_memory.call(host, "doctor", spec, CALL_SECONDS)

        self._each(specs, asked)

    def _look(self, host: Host, asked: Wanted) -> None:
        seen = self.seen[host.name]
        seen.step = "ssh"
        began = time.monotonic()
        host.connector.connect()
        seen.passed("host key", "known")
        seen.passed("ssh", f"logged in as {become.user(host)}, {time.monotonic() - began:.1f} s")
        said = dict(line.partition(":")[::2] for line in kit_in_memory.answers(host))
        seen.step = "root"
        seen.passed("root", _root(host, said))
        seen.step = "python"
        seen.passed("python", _python(host, said))
        seen.step = "look"
        before = time.time()
        seen.facts = dict(kit_in_memory.call(host, "probe", asked.spec())["facts"])
        seen.asked = (before, time.time())

    def _each(self, given: Mapping[str, Any], action: Callable[[Host, Any], None]) -> None:
        names = [name for name in given if not self.seen[name].failure]
        if not names:
            return
        with ThreadPoolExecutor(min(AT_ONCE, len(names))) as pool:
            list(pool.map(lambda name: self._one(self.hosts[name], given[name], action), names))

    def _one(self, host: Host, given: Any, action: Callable[[Host, Any], None]) -> None:
        seen = self.seen[host.name]
        try:
            action(host, given)
        except ConnectError as error:
            cause = str(error.args[0])
            step = "host key" if "does not match" in cause else "ssh"
            seen.ended(step, cause, remedy(host.name, self.fleet.addresses[host.name], cause))
        except BoxError as error:
            seen.ended(seen.step, error.cause, error.remedy)
        except Exception as error:  # whatever it is, it is this box's; the others go on
            seen.ended(seen.step, f"{type(error).__name__}: {error}", "see to what it names on the controller")


def _stranger(item: contact.Unknown) -> tuple[str, str]:
    kind = item.key.get_name()
    name = {"ssh-rsa": "rsa", "ssh-ed25519": "ed25519"}.get(kind, "ecdsa")
    return (
        f"nobody knows it yet: {item.entry} {kind} {item.key.fingerprint}",
        f"compare it with `ssh-keygen -lf /etc/ssh/ssh_host_{name}_key.pub` on the box, then confirm it: "
        "`gpufleet discover` in a terminal asks",
    )


def _root(host: Host, said: Mapping[str, str]) -> str:
    """How the login becomes root, which is remembered for the calls that follow. Raises BoxError."""
    if "NOSUDO" in said:
        cause = f"{become.user(host)} is not root and there is no sudo"
        raise BoxError(host.name, cause, "log in as root (ssh_user), or install sudo on the box")
    if "AS" in said:
        become.by_box[host.name] = "" if said["AS"] else None
        return "sudo without a password" if said["AS"] else "logged in as root"
    words = said.get("SUDO", "")
    if "password is required" not in words:
        raise become.no_sudo(host, words)
    password = become.password(host)
    if password is None:
        raise BoxError(
            host.name,
            "sudo asks for a password",
            f"run this in a terminal to be asked for it, or set {become.PASSWORD_VARIABLE}, or allow sudo without one",
        )
    become.by_box[host.name] = password
    kit_in_memory.as_root(host)
    return "sudo with a password"


def _python(host: Host, said: Mapping[str, str]) -> str:
    """Raises BoxError without a Python that the kit runs on."""
    version = said.get("PYTHON")
    if version is None:
        raise BoxError(host.name, "there is no python3", "install it: apt-get install python3")
    found = tuple(int(part) for part in version.split("."))
    if found < kit_in_memory.LEAST:
        raise BoxError(
            host.name, f"its python3 is {version}", "a system of Debian 12 or Ubuntu 22.04 or newer is needed"
        )
    return f"python {version}"


def _interrupted(number: int, frame: FrameType | None) -> None:
    click.echo("gpufleet: interrupted; nothing was changed", err=True)
    os._exit(INTERRUPTED)  # the calls that are under way would hold up any other end
