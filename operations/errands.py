"""Verbs of the kit on boxes without a run of pyinfra: connected once, used as often as the command needs."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import operations.greenlets  # noqa: F401
import click
import gevent
import pyinfra
from pyinfra.api import Config, Inventory, State
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host

from gpufleet.errors import INTERRUPTED, BoxError
from gpufleet.fleet import Fleet
from operations import discovery, lease, remote, transport, wanted
from operations.contact import keep_failures_apart
from operations.errand_lock import Lock
from operations.unreachable import remedy
from operations.wanted import Wanted

AT_ONCE = 50
INTERRUPTED_TEXT = "gpufleet: interrupted; what was begun on a box is finished there"


class Boxes:
    """Boxes that are called one after another or at once; one that failed is not called again.

    + hosts: those that are called; + facts: what the last look at each told; + failures: what went wrong; each by name
    """

    def __init__(
        self, fleet: Fleet, names: Sequence[str], packages: bool = False, interrupted: str = INTERRUPTED_TEXT
    ) -> None:
        """Connect to these boxes. Raises ConfigError when a host key is not trusted. Ctrl-C ends the program, 130.

        + packages: whether the look tells of the packages and places that a plan asks for
        + interrupted: what is said on Ctrl-C
        """
        self.held: Lock | None = None
        self.interrupted = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
                signal.signal(number, partial(self._interrupted, interrupted))
        pyinfra.is_cli = True  # a key's password may be asked for
        for name in ("pyinfra", "paramiko"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what goes wrong is said once, by us
        keep_failures_apart()
        transport.install()
        self.addresses = fleet.addresses
        found = wanted.of(fleet, {})
        self.wanted = found if packages else Wanted(units=found.units)
        self.failures: dict[str, BoxError] = {
            name: self._unreachable(name, cause) for name, cause in discovery.contact(fleet, names, {}).items()
        }
        state = State(Inventory(([(name, fleet.connection(name)) for name in names], {})), Config())
        state.cwd = str(Path.cwd())
        self.hosts = {host.name: host for host in state.inventory}
        self.facts: dict[str, dict[str, Any]] = self._each(dict.fromkeys(self.hosts), lambda host, _: self._look(host))

    def look(self) -> dict[str, dict[str, Any]]:
        """Look at all of them again, those that failed too: they may be back."""
        self.failures.clear()
        self.facts = self._each(dict.fromkeys(self.hosts), lambda host, _: self._look(host))
        return self.facts

    def call(
        self,
        verb: str,
        specs: Mapping[str, Mapping[str, Any]],
        say: Callable[[str, str], None] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Run a verb on each box that has a spec, at once; what failed is in `failures`.

        + say: takes the name of a box and a line that the verb says while it works
        """

        def action(host: Host, spec: Mapping[str, Any] | None) -> dict[str, Any]:
            return remote.call(host, verb, spec or {}, log=partial(say, host.name) if say else None)

        return self._each(specs, action)

    def lock(self, box: str, folder: Path, what: str) -> dict[str, Any] | None:
        """Hold the fleet's lock on this box until `unlock`, or until Ctrl-C; who has it instead, when another run does.

        + folder: where the reports of the inventory lie
        Raises BoxError when the box does not answer.
        """
        self.held = Lock(folder, what)
        return self.held.take(self.hosts[box])

    def unlock(self, gone: bool = False) -> None:
        """+ gone: the box has nothing of gpufleet any more, neither the lock nor the kit"""
        if self.held and gone:
            self.held.gone()
        elif self.held:
            self.held.release()

    def _look(self, host: Host) -> dict[str, Any]:
        """Log in where there is no connection, become root, send the kit where it is new: the look does all of it."""
        client = getattr(host.connector, "client", None)
        transport = client.get_transport() if client else None
        if transport is None or not transport.is_active():
            host.connector.connect()
        return remote.probe(host, self.wanted)

    def _each(self, given: Mapping[str, Any], action: Any) -> dict[str, Any]:
        names = [name for name in given if name in self.hosts and name not in self.failures]
        if not names:
            return {}
        with ThreadPoolExecutor(min(AT_ONCE, len(names))) as pool:
            answers = list(pool.map(lambda name: self._one(self.hosts[name], given[name], action), names))
        found = dict(zip(names, answers, strict=True))
        self.failures |= {name: answer for name, answer in found.items() if isinstance(answer, BoxError)}
        return {name: answer for name, answer in found.items() if not isinstance(answer, BoxError)}

    def _one(self, host: Host, given: Any, action: Any) -> Any:
        try:
            return action(host, given)
        except ConnectError as error:
            return self._unreachable(host.name, str(error.args[0]))
        except BoxError as error:
            return error
        except Exception as error:  # whatever it is, it is this box's; the others go on
            return BoxError(host.name, f"{type(error).__name__}: {error}", "see to what it names on the controller")

    def _unreachable(self, name: str, cause: str) -> BoxError:
        return BoxError(name, cause, remedy(name, self.addresses[name], cause))

    def _interrupted(self, text: str, number: int, frame: FrameType | None) -> None:
        again, self.interrupted, held = self.interrupted, True, self.held
        if text and not again:
            with suppress(OSError):
                click.echo(text, err=True)
        if again or not held or not held.host:
            _leave()
        # A signal handler cannot talk to a box: another greenlet does it, for so long and no longer.
        signal.signal(signal.SIGALRM, lambda *_: _leave())
        signal.alarm(int(lease.RELEASE_SECONDS) + 1)
        gevent.spawn(_let_go, held)


def _let_go(held: Lock) -> None:
    held.release()
    _leave()


def _leave() -> None:
    os._exit(INTERRUPTED)  # the calls that are under way would hold up any other end
