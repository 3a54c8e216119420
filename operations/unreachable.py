"""Why a box cannot be reached, in words that say what to look at, and what to do about it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from socket import gaierror
from typing import Any

from paramiko import AuthenticationException, BadHostKeyException, SSHException
from paramiko.ssh_exception import NoValidConnectionsError

from gpufleet.ssh_config import expanded

NOT_SSH = "does not speak SSH"
NO_ANSWER = "No existing session"  # paramiko's words where the time is over
# How paramiko says that no line of SSH's came; the last two also when the other side fell silent later.
_NO_BANNER = ("Error reading SSH protocol banner", "Indecipherable protocol version", "Invalid SSH banner")
_BROKEN_OFF = (NO_ANSWER, "Negotiation failed")


def place(host: str, port: Any) -> str:
    """`192.0.2.1:22`, `[2001:db8::7]:22`"""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def cause(error: BaseException, where: str, client: Any) -> str:
    """Why there is no connection; empty where pyinfra's words for it do.

    + where: the address that was asked; + client: pyinfra's that asked, as it is after the error
    """
    transport, config = client and client.get_transport(), getattr(client, "_ssh_config", None) or {}
    if isinstance(error, gaierror):
        return f"Could not resolve hostname ({error.strerror or error}): {where}"
    if isinstance(error, NoValidConnectionsError):
        where = ", ".join(place(*address[:2]) for address in error.errors)  # the jump host's, where it is that one
    if isinstance(error, OSError):
        return f"Could not connect to {where}: {_why(error)}"
    if isinstance(error, AuthenticationException | BadHostKeyException) or transport is None:
        return ""
    if isinstance(error, SSHException | EOFError):
        said = str(error)
        broken_off = isinstance(error, EOFError) or said.startswith(_BROKEN_OFF)
        if not transport.remote_version and (broken_off or said.startswith(_NO_BANNER)):
            if config.get("sock"):
                return f"no SSH comes from {where} by way of the ProxyCommand or ProxyJump of the ssh config"
            return f"something listens on {where} and {NOT_SSH}{' (no answer)' if said == NO_ANSWER else ''}"
        if broken_off:
            return f"SSH error (what listens on {where} broke the connection off before the login, or took too long)"
    return ""


def _why(error: BaseException) -> str:
    """`connection refused`, `timed out`: of several addresses of one name each, once."""
    if isinstance(error, NoValidConnectionsError):
        return ", ".join(dict.fromkeys(_why(each) for each in error.errors.values()))
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


def login(box: str, data: Mapping[str, Any]) -> str:
    """The command that logs in as gpufleet does, for a shell. + data: pyinfra's ssh_… data of the box"""
    words = ["ssh"]
    if file := data.get("ssh_config_file"):
        words += ["-F", expanded(str(file))]
    if (port := data.get("ssh_port")) not in (None, 22):
        words += ["-p", str(port)]
    if key := data.get("ssh_key"):
        words += ["-i", expanded(str(key))]
    user, address = data.get("ssh_user"), data.get("ssh_hostname") or box
    return shlex.join([*words, f"{user}@{address}" if user else str(address)])


def remedy(box: str, data: Mapping[str, Any], cause: str) -> str:
    """What to do about a connection that could not be made, by the words for why."""
    command = f"`{login(box, data)}`"
    if NOT_SSH in cause:
        return f"check ssh_port, and that {command} works; where the port is right, sshd there hangs or turns you away"
    if "does not match" in cause:
        address, port, file = data.get("ssh_hostname") or box, data.get("ssh_port"), data.get("ssh_known_hosts_file")
        entry = address if port in (None, 22) else shlex.quote(f"[{address}]:{port}")
        forget = f"ssh-keygen -R {entry}" + (f" -f {shlex.quote(str(file))}" if file else "")
        return (
            f"if the box was installed anew, {forget} and compare the new key at the next deploy; if not, somebody is "
            "between you and it"
        )
    if "private key" in cause.lower():
        return "correct ssh_key, or ssh_key_password when the key has one"
    if "authentication" in cause.lower():
        return f"check ssh_user and ssh_key, and that {command} works"
    if "known_hosts" in cause:
        return "run this once in a terminal and confirm its key"
    return f"check that it is on, and that {command} works"
