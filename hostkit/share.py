"""Starts the server that gives other boxes what this one has, in a transient unit without rights."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
import sys
import time
from typing import Iterator, Optional

from hostkit import files, serve, shell, systemd
from hostkit.errors import Failure

UNIT = "gpufleet-share"
SECRETS = "/run/gpufleet-share.env"  # root's alone: systemd reads it, and hands the token on to the unit
PORT = "/run/gpufleet-share/port"
LOCK = "/run/gpufleet-share.lock"
START_SECONDS = 20
EVERYWHERE = "0.0.0.0"  # noqa: S104 - only where no address is known that others reach the box at
PROPERTIES = (
    "DynamicUser=yes",
    "EnvironmentFile=" + SECRETS,
    "RuntimeDirectory=gpufleet-share",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectControlGroups=yes",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "RestrictAddressFamilies=AF_INET AF_INET6",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "LockPersonality=yes",
    "MemoryDenyWriteExecute=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "MemoryMax=512M",
    "TasksMax=64",
)


def run(spec: dict) -> dict:
    """Start the server, or find the one that runs.

    Returns {"port", "token", "addresses"}: `addresses` are those at which other boxes may reach it. Raises Failure when
    it does not start.
    """
    with locked():
        found = running()
        if found is None:
            start()
            found = running()
    if found is None:
        raise Failure(
            "the server for other boxes did not start: {}".format(last_words()),
            "look at `journalctl -u {}` on the box; without it everything comes from the controller".format(UNIT),
        )
    return found


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One at a time starts or ends the server. Raises Failure when its unit's name is an instance's."""
    if os.path.lexists(os.path.join(files.UNITS, UNIT + ".service")):
        raise Failure(
            "{}.service is the unit of an instance".format(UNIT),
            "give that instance another name; until then everything comes from the controller",
        )
    descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def running() -> Optional[dict]:
    """What `share` answers, when the unit is up."""
    if systemd.show(UNIT)["active"] != "active":
        return None
    try:
        with open(SECRETS, encoding="utf-8") as handle:
            told = dict(line.rstrip("\n").split("=", 1) for line in handle)
        with open(PORT, encoding="utf-8") as handle:
            port = int(handle.read())
    except FileNotFoundError:
        return None
    listen = told[serve.LISTEN]
    address = listen if listen != EVERYWHERE else outward()
    return {"port": port, "token": told[serve.TOKEN], "addresses": [address] if address else []}


def start() -> None:
    systemd.stop(UNIT)  # one that hangs in its start
    systemd.forget(UNIT)
    lines = {serve.TOKEN: secrets.token_urlsafe(24), serve.LISTEN: contacted() or EVERYWHERE}
    files.write(SECRETS, "".join("{}={}\n".format(*item) for item in lines.items()).encode(), 0o600)
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    command = ["systemd-run", "--quiet", "--collect", "--unit=" + UNIT, "--description=gpufleet: files for other boxes"]
    command += ["--property=" + each for each in PROPERTIES]
    try:
        shell.run(command + [python, "-IS", os.path.abspath(sys.argv[0]), "serve"], timeout=60)
    except shell.Ended as ended:
        raise Failure("the server for other boxes did not start: {}".format(ended.tail), "report this")
    until = time.monotonic() + START_SECONDS
    while running() is None and time.monotonic() < until and systemd.show(UNIT)["active"] != "inactive":
        time.sleep(0.05)


def last_words() -> str:
    return " ".join(systemd.log_since(UNIT + ".service", time.time() - 60)[-2:]) or "it said nothing"


def contacted() -> Optional[str]:
    """The address of this box that its controller came in on, when others can use it too."""
    words = ssh_connection().split()
    address = words[2] if len(words) == 4 else ""
    # by a tunnel, or an address that means another interface on each box
    return address if address and not address.startswith(("127.", "::1", "fe80:")) else None


def ssh_connection() -> str:
    """sshd's SSH_CONNECTION; sudo takes it out of the environment, so the processes above are asked."""
    pid = os.getpid()
    while pid > 1:
        try:
            with open("/proc/{}/environ".format(pid), "rb") as handle:
                for entry in handle.read().split(b"\0"):
                    if entry.startswith(b"SSH_CONNECTION="):
                        return entry.split(b"=", 1)[1].decode("ascii", "replace")
            with open("/proc/{}/stat".format(pid), encoding="utf-8", errors="replace") as handle:
                pid = int(handle.read().rpartition(")")[2].split()[1])
        except OSError:
            break
    return ""


def outward() -> Optional[str]:
    """The address this box sends from by its default route; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address of no machine (RFC 5737)
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address
