"""Looking at boxes before a run, or without one: by connections made as pyinfra makes its own, and handed over to it.

The run that follows goes on with the same connection and the same answer, and does not try again what failed: so a box
that is off costs its time limit once, a wrong password is tried once, and a first run connects once to each box.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import operations.greenlets  # noqa: F401
import click
import pyinfra
from pyinfra.api import Config, Inventory, State
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.connectors.ssh import SSHConnector

from gpufleet import known, left_behind
from gpufleet.errors import INTERRUPTED, BoxError
from gpufleet.fleet import Fleet
from gpufleet.inventory import SSH_KEYS
from gpufleet.kept import problem
from gpufleet.terminal import plain
from operations import remote, transport, wanted
from operations.contact import first_contact, keep_failures_apart
from operations.run import session
from operations.wanted import Wanted

AT_ONCE = 50


@dataclass
class Seen:
    """What became of a box's early look: its facts, or why there are none."""

    facts: dict[str, Any] | None = None
    failure: BoxError | None = None  # the box could be reached, and this went wrong there
    unreachable: str = ""  # pyinfra's own words for why there is no connection
    client: Any = None

    @property
    def cause(self) -> str:
        return self.unreachable or (self.failure.cause if self.failure else "its driver does not show its GPUs")


# Early looks of this run, by box, each until the run takes it over.
_seen: dict[str, Seen] = {}
_connections: dict[str, Seen] = {}


def meet(fleet: Fleet, limit: list[str], exclude: list[str], overrides: Mapping[str, Any], config: Any) -> None:
    """Before pyinfra makes its groups: ask about unknown host keys, and look at the boxes that nothing is known of.

    Only at those the run is for; when --limit or --exclude name a trait, at all of them, to tell which have it.
    Raises ConfigError when a host key is not trusted, or the words of --limit and --exclude leave no box.
    """
    for line in left_behind.lines(fleet):
        click.echo(plain(f"gpufleet: {line}"), err=True)
    new = fleet.to_look_at(limit, exclude)
    gone = contact(fleet, fleet.concerned(limit, exclude), overrides, config)
    if reachable := [name for name in new if name not in gone]:
        who = ", ".join(reachable) if len(reachable) <= 5 else f"{len(reachable)} boxes"
        click.echo(f"gpufleet: a first look at {who}", err=True)
    found = look_at(fleet, new, overrides, config, gone)
    for name, seen in found.items():
        if seen.facts and known.telling(seen.facts):
            known.keep(fleet.facts_folder, name, seen.facts)
            fleet.facts[name] = seen.facts
    left_behind.note(fleet, [name for name, seen in found.items() if seen.facts])
    meant: list[str] = []
    try:
        meant = fleet.select(limit, exclude)
    finally:
        for name in fleet.unseen(name for name in new if name not in meant):
            click.echo(
                f"gpufleet: {name} is in no group by trait, since it could not be looked at: {found[name].cause}",
                err=True,
            )
    later = contact(fleet, [name for name in meant if name not in found], overrides, config)
    hand_over({**found, **{name: Seen(unreachable=cause) for name, cause in later.items()}}, meant)


def alone(fleet: Fleet, names: list[str]) -> dict[str, dict[str, Any] | BoxError]:
    """Look at these boxes without a run of pyinfra: the facts of each, or why there are none.

    Raises ConfigError when a host key is not trusted. Ctrl-C ends the program at once, with 130.
    """
    signal.signal(signal.SIGINT, _interrupted)
    pyinfra.is_cli = True  # a key's password may be asked for
    for name in ("pyinfra", "paramiko"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what goes wrong is said once, by us
    keep_failures_apart()
    transport.install()
    found = look_at(fleet, names, {}, unreachable=contact(fleet, names, {}))
    return {name: _facts_or_error(name, fleet.addresses[name], found[name]) for name in names}


def _interrupted(number: int, frame: FrameType | None) -> None:
    click.echo("gpufleet: interrupted; the facts stay as they were", err=True)
    os._exit(INTERRUPTED)  # the looks that are under way would hold up any other end


def _facts_or_error(name: str, address: Mapping[str, Any], seen: Seen) -> dict[str, Any] | BoxError:
    if seen.facts is None:
        if seen.failure:
            return seen.failure
        from operations.unreachable import remedy  # most runs do not need it

        return BoxError(name, seen.unreachable, remedy(name, address, seen.unreachable))
    if wrong := known.telling(seen.facts) and problem(known.stable(seen.facts)):
        return BoxError(name, f"its answer is not as facts have to be ({wrong}), and was not kept", "report this")
    if known.telling(seen.facts):
        return seen.facts
    said = "; ".join(error["message"] for error in seen.facts["errors"] if error["source"] in ("nvml", "driver"))
    return BoxError(
        name,
        f"its driver does not show its GPUs ({said or 'no reason given'}); what was known of it stays",
        "run nvidia-smi on the box; a driver updated without a reboot needs one",
    )


def contact(fleet: Fleet, names: Iterable[str], overrides: Mapping[str, Any], config: Any = None) -> dict[str, str]:
    """Ask about the unknown host keys of these boxes; those that are not there, and why. Raises ConfigError."""
    given = {key: value for key, value in overrides.items() if key in SSH_KEYS}
    addresses = {name: {**fleet.addresses[name], **given} for name in dict.fromkeys(names)}
    return first_contact(addresses, seconds=_of(config, "CONNECT_TIMEOUT"))


def look_at(
    fleet: Fleet,
    names: Iterable[str],
    overrides: Mapping[str, Any],
    config: Any = None,
    unreachable: Mapping[str, str] | None = None,
) -> dict[str, Seen]:
    """Look at these boxes, many at once; one that fails says why and costs the others nothing.

    + overrides: the data that the command line gives all boxes (ssh_user, --data …)
    + config: pyinfra's of this run, for its time limit and the sudo password
    + unreachable: boxes already known to be so, and why
    """
    gone = dict(unreachable or {})
    listed = [(name, fleet.connection(name)) for name in names if name not in gone]
    state = State(
        Inventory((listed, {}), override_data=dict(overrides)),
        Config(CONNECT_TIMEOUT=_of(config, "CONNECT_TIMEOUT"), SUDO_PASSWORD=_of(config, "SUDO_PASSWORD")),
    )
    state.cwd = str(Path.cwd())
    asked = wanted.of(fleet, overrides)
    found = {name: Seen(unreachable=cause) for name, cause in gone.items()}
    if listed:
        with ThreadPoolExecutor(min(AT_ONCE, len(listed))) as pool:
            hosts = list(state.inventory)
            answers = pool.map(lambda host: _look(host, asked), hosts)
            found |= {host.name: seen for host, seen in zip(hosts, answers, strict=True)}
    return found


def hand_over(found: Mapping[str, Seen], taken: Iterable[str]) -> None:
    """Keep what was found of the boxes that the run is for; the other connections are closed."""
    wanted = set(taken)
    for name, seen in found.items():
        if name in wanted:
            _seen[name] = _connections[name] = seen
        elif seen.client:
            seen.client.close()


def earlier(name: str) -> dict[str, Any] | None:
    """The facts of a box's early look, once; None when there was none. Raises the BoxError of one that failed."""
    seen = _seen.pop(name, None)
    if seen and seen.failure:
        raise seen.failure
    return seen.facts if seen else None


def connect_once() -> None:
    """From now on pyinfra takes over the connections of early looks, and their failures.

    Where a deploy connects, the box begins its look at once: it reads while others still connect.
    """
    original = SSHConnector.connect
    asked: list[Wanted] = []  # of all boxes alike: found out once, since it goes through all of them

    def connect(self: SSHConnector) -> None:
        seen = _connections.pop(self.host.name, None)
        if seen and seen.unreachable:
            raise ConnectError(seen.unreachable)
        transport = seen.client.get_transport() if seen and seen.client else None
        if seen and transport and transport.is_active():
            self.client = seen.client
        else:
            original(self)
            if session.deploys and session.fleet:
                if not asked:
                    asked.append(wanted.of(session.fleet, session.overrides))
                remote.begin(self.host, asked[0])

    SSHConnector.connect = connect  # type: ignore[method-assign]


def _look(host: Host, asked: Wanted) -> Seen:
    seen = Seen()
    try:
        connector = host.connector
        connector.connect()
        seen.client = getattr(connector, "client", None)
        seen.facts = remote.probe(host, asked)
    except ConnectError as error:
        seen.unreachable = str(error.args[0])
    except BoxError as error:
        seen.failure = error
    except Exception as error:  # whatever it is, it is this box's
        cause = f"{type(error).__name__}: {error}"
        seen.failure = BoxError(host.name, cause, "see to what it names on the controller, then try again")
    return seen


def _of(config: Any, key: str) -> Any:
    return getattr(config, key) if config is not None else getattr(Config(), key)
