"""First contact: host keys nobody has seen yet are shown and asked for once; from then on they are checked."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from paramiko import HostKeys, MissingHostKeyPolicy, PKey, SSHException
from paramiko import SSHClient as ParamikoClient
from paramiko.hostkeys import HostKeyEntry
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.connectors import ssh_util
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.sshuserclient import SSHClient
from pyinfra.connectors.sshuserclient import client as ssh_client

from gpufleet import ssh_config
from gpufleet.address import PORTS
from gpufleet.errors import ConfigError

CONNECT_SECONDS = 10
confirmed: set[str] = set()  # boxes whose keys the user said yes to in this run


@dataclass(frozen=True)
class Unknown:
    """A box whose host key is in no known_hosts file."""

    box: str
    entry: str  # as known_hosts names it: the address, or [address]:port
    key: PKey
    known_hosts: Path

    def line(self) -> str:
        return f"{self.box} ({self.entry}): {self.key.get_name()} {self.key.fingerprint}"


class _Seen(SSHException):
    def __init__(self, key: PKey) -> None:
        super().__init__("host key seen")
        self.key = key


class _Look(MissingHostKeyPolicy):
    def missing_host_key(self, client: ParamikoClient, hostname: str, key: PKey) -> None:
        raise _Seen(key)  # before any authentication


class _LookingClient(SSHClient):
    """pyinfra's client, so that the user's ssh config and jump hosts are honoured, which only looks at the host key."""

    def set_missing_host_key_policy(self, policy: Any) -> None:
        super().set_missing_host_key_policy(_Look())


def first_contact(
    addresses: Mapping[str, Mapping[str, Any]],
    ask: Callable[[str], str] | None = None,
    seconds: float = CONNECT_SECONDS,
) -> dict[str, str]:
    """Look at boxes with unknown host keys, show the keys, ask once for all, and remember them.

    + addresses: pyinfra's ssh_… data by box
    + ask: how to ask (default: the terminal; without one the keys are refused)
    + seconds: the time limit of a connection
    Returns the boxes that were found not to be there, with the cause in pyinfra's words, so that nobody has to wait for
    them again. Raises ConfigError when the answer is no.
    """
    found, gone = unknown(addresses, seconds)
    if not found:
        return gone
    lines = [item.line() for item in found]
    if ask is None:
        if not sys.stdin.isatty():
            raise ConfigError(
                f"{line}: this host key is not known. Run this once in a terminal and compare it, or log in by ssh once"
                for line in lines
            )
        ask = _ask_terminal
    print("Host keys that are not known yet:", *lines, sep="\n    ", file=sys.stderr)
    if ask(
        f"Compare them with the boxes' own. Trust {'it' if len(found) == 1 else 'all of them'} from now on? [y/N] "
    ).strip().lower() not in ("y", "yes"):
        raise ConfigError(f"{line}: its host key is not trusted. Nothing was done" for line in lines)
    for item in found:
        remember(item)
        confirmed.add(item.box)
    return gone


def unknown(
    addresses: Mapping[str, Mapping[str, Any]], seconds: float = CONNECT_SECONDS
) -> tuple[list[Unknown], dict[str, str]]:
    """(the host keys that nobody knows yet, the boxes that are not there and why); nothing is asked or remembered."""
    with ThreadPoolExecutor(max(1, min(32, len(addresses)))) as pool:
        keys = cache(_keys)  # reading a file takes the square of its lines
        answers = list(pool.map(lambda pair: _look(pair[0], pair[1], seconds, keys), addresses.items()))
    gone = {name: item for name, item in zip(addresses, answers, strict=True) if isinstance(item, str)}
    return [item for item in answers if isinstance(item, Unknown)], gone


def _ask_terminal(question: str) -> str:
    """The answer; an end of input (Ctrl-D) is a no."""
    try:
        return input(question)
    except EOFError:
        return ""


def remember(item: Unknown) -> None:
    """Append a key to its known_hosts file."""
    item.known_hosts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = HostKeyEntry([item.entry], item.key).to_line()
    old = item.known_hosts.read_bytes() if item.known_hosts.exists() else b""
    with open(
        item.known_hosts, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)
    ) as handle:
        handle.write(("\n" if old and not old.endswith(b"\n") else "") + (line or ""))


def keep_failures_apart() -> None:
    """A key file that cannot be read ends pyinfra's whole run; like any failure to connect, it is to cost one box.

    Why there is no connection is said in words that tell what to look at.
    """
    original, original_keys = SSHConnector.connect, ssh_client.get_host_keys

    def ask(prompt: str = "Password: ", stream: TextIO | None = None) -> str:
        if not sys.stdin.isatty():
            raise PyinfraError(f"{prompt.removeprefix('Enter password for ').rstrip(': ')} has a password")
        return getpass.getpass(prompt, stream)

    def connect(self: SSHConnector) -> None:
        try:
            original(self)
        except ConnectError as error:
            raise ConnectError(_words(self, error)) from error
        except PyinfraError as error:
            raise ConnectError(str(error)) from error

    def host_keys(files: tuple[str, ...]) -> HostKeys:
        """Of a file that is not there yet there is nothing to be said."""
        keys: HostKeys = original_keys(tuple(file for file in files if Path(file).exists()))
        return keys

    SSHConnector.connect = connect  # type: ignore[method-assign]
    ssh_client.get_host_keys = host_keys
    ssh_util.getpass = ask


def _words(connector: SSHConnector, error: ConnectError) -> str:
    """Why there is no connection: pyinfra's own words hide what the system said."""
    client, data = connector.client, connector.host.data.dict()
    config = getattr(client, "_ssh_config", None) or {}
    host, port = data.get("ssh_hostname") or connector.host.name, config.get("port") or data.get("ssh_port") or 22
    return _cause(error.__context__, host, port, client) or str(error.args[0])


def _cause(error: BaseException | None, host: str, port: Any, client: Any) -> str:
    """Empty where pyinfra's words do."""
    from operations import unreachable  # most runs do not need it

    return unreachable.cause(error, unreachable.place(host, port), client) if error else ""


def _look(box: str, data: Mapping[str, Any], seconds: float, keys: Callable[[str], HostKeys]) -> Unknown | str | None:
    """The key of a box that nobody knows yet; a text: why the box is not there; None: known, or for pyinfra to say."""
    client = _LookingClient()
    config_file = _ssh_config_of(box, data)
    port = int(data.get("ssh_port") or 0)
    arguments: dict[str, Any] = {"port": port} if port else {}
    try:
        hostname, config, _, _, files, _, _ = client.parse_config(
            data.get("ssh_hostname") or box, dict(arguments), ssh_config_file=config_file
        )
    except ValueError as error:  # of a Port or a ConnectTimeout
        raise ConfigError([f"{config_file or ssh_config.USERS}: what it says of {box} cannot be: {error}"]) from None
    except (OSError, SSHException, EOFError):  # a jump host that cannot be reached
        return None
    config.update(arguments)  # stronger than the config, as pyinfra has it when it connects
    if config["port"] not in PORTS:
        raise ConfigError(
            [f"{config_file or ssh_config.USERS}: the Port of {box} is {config['port']}; it must be 1 to 65535"]
        )
    if data.get("ssh_known_hosts_file"):
        files = (data["ssh_known_hosts_file"],)
    entry = hostname if config["port"] == 22 else f"[{hostname}]:{config['port']}"
    if any(keys(file).lookup(entry) for file in files):
        return None
    try:
        client.connect(
            data.get("ssh_hostname") or box,
            _pyinfra_ssh_config_file=config_file,
            _pyinfra_ssh_known_hosts_file=os.devnull,
            timeout=seconds,
            allow_agent=False,
            look_for_keys=False,
            **arguments,
        )
    except _Seen as seen:
        return Unknown(box, entry, seen.key, _at_home(files[0]))
    except (OSError, SSHException, EOFError) as error:
        if data.get("ssh_connect_retries"):  # it may come up while pyinfra tries again
            return None
        return _cause(error, hostname, config["port"], client) or None
    finally:
        client.close()
    return None


def _ssh_config_of(box: str, data: Mapping[str, Any]) -> str | None:
    """The box's own ssh config; None: the user's. Raises ConfigError when the one that counts cannot be read."""
    own = data.get("ssh_config_file")
    file = _at_home(own) if own else Path(ssh_config.expanded(ssh_config.USERS))
    if problem := _config_problem(file):
        raise ConfigError([problem])
    if own and not file.exists():
        raise ConfigError(
            [f"{box}: ssh_config_file is {file}, which is not there; correct it, or name /dev/null for none"]
        )
    return str(file) if own else None


@cache
def _config_problem(file: Path) -> str:
    return ssh_config.problem(file)


def _at_home(file: str) -> Path:
    """The path of `~/.ssh/known_hosts`. Raises ConfigError for a user without a home."""
    try:
        return Path(file).expanduser()
    except RuntimeError:
        raise ConfigError([f"{file}: this user has no home: set HOME, or give whole paths"]) from None


def _keys(file: str) -> HostKeys:
    """The keys of a known_hosts file; none of one that is not there. Raises ConfigError when it cannot be read."""
    keys = HostKeys()
    try:
        keys.load(str(_at_home(file)))
    except OSError:
        pass
    except (SSHException, ValueError) as error:
        raise ConfigError([f"{file} cannot be read: {error}; mend or remove that line"]) from None
    return keys
