"""One run of deploy.py: what is refused before it, what became of each box, the report, the exit code."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import click
import pyinfra
import pyinfra_cli.cli
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.state import BaseStateCallback, State
from pyinfra.context import ctx_config, ctx_state
from pyinfra_cli.exceptions import CliError
from pyinfra_cli.util import parse_cli_arg

from gpufleet import inventory
from gpufleet.errors import (
    BOX_FAILED,
    DONE,
    INTERRUPTED,
    WOULD_CHANGE,
    WRONG,
    BoxError,
    ConfigError,
    nearest,
)
from gpufleet.fleet import Fleet
from gpufleet.inventory import SSH_KEYS
from gpufleet.layers import checked
from gpufleet.report import Outcome, show
from gpufleet.settings import Settings
from operations import discovery
from operations.contact import keep_failures_apart, remedy


class Stop(CliError, PyinfraError):
    """Ends the run cleanly with an exit code of its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def show(self, file: Any = None) -> None:
        click.echo(f"gpufleet: {self.message}", err=True)


@dataclass
class Session:
    """What became of each box in this run."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)  # the data that the command line gives every box
    shown: bool = False
    dry: bool = False

    def of(self, box: str) -> Outcome:
        return self.outcomes.setdefault(box, Outcome(box))

    def failed(self, error: BoxError) -> None:
        outcome = self.of(error.box)
        if not outcome.failure:
            outcome.failure = str(error).removeprefix(f"{error.box}: ")

    def exit_code(self) -> int:
        """1 when a box failed or was left out, 5 when a dry run found something to change, else 0."""
        outcomes = self.outcomes.values()
        if any(outcome.failure or outcome.refused for outcome in outcomes):
            return BOX_FAILED
        if self.dry and any(outcome.changes for outcome in outcomes):
            return WOULD_CHANGE
        return DONE

    def report(self) -> None:
        if not self.shown and self.outcomes:
            self.shown = True
            # A run that its user did not confirm has done as little as a dry one.
            self.dry = self.dry or not (ctx_state.isset() and pyinfra.state.is_executing)
            show(list(self.outcomes.values()), self.dry)


logger = logging.getLogger(__name__)
session = Session()
_installed: list[bool] = []


class _Callbacks(BaseStateCallback):
    """pyinfra reports a box that cannot be reached in several lines; here it becomes one with a remedy."""

    @staticmethod
    def host_connect_error(state: State, host: Host, error: Exception) -> None:
        cause = " ".join(str(error).split())
        session.failed(BoxError(host.name, cause, remedy(host.name, host.data.dict(), cause)))

    @staticmethod
    def operation_host_error(
        state: State, host: Host, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        names = ", ".join(state.get_op_meta(op_hash).names)
        session.failed(BoxError(host.name, f"{names} failed", "read the lines above, then deploy again"))


def install() -> None:
    """Called by config.py, before pyinfra reads the inventory. Refuses what could not be safe; exit 2."""
    if _installed:
        return
    _installed.append(True)
    params = click.get_current_context().params
    session.dry = bool(params.get("dry"))
    for option, why in (
        ("serial", "its order is random and it goes on past a failed box"),
        ("no_wait", "it hides failures"),
    ):
        if params.get(option):
            raise Stop(f"--{option.replace('_', '-')} is not for fleets: {why}. Leave it out", WRONG)
    wanted = str(params.get("inventory") or "")
    if wanted.endswith(".py") and not Path(wanted).is_file():
        raise Stop(f"there is no inventory {wanted}: give the path of a file such as inventory/home.py", WRONG)
    deploys = all(str(name).endswith(".py") for name in params.get("operations") or ())
    if deploys and not (params.get("yes") or params.get("dry") or params.get("json_output") or sys.stdin.isatty()):
        raise Stop("there is no terminal to confirm the changes in: add -y, or --dry to see them only", WRONG)
    signal.signal(signal.SIGINT, _interrupted)
    atexit.register(session.report)
    pyinfra_cli.cli._exit = _exit
    _keep_overrides()
    keep_failures_apart()
    discovery.connect_once()
    inventory.before_connect.append(_before_connect)


def installed() -> bool:
    return bool(_installed)


def _keep_overrides() -> None:
    """What --data, --ssh-user, --ssh-password-prompt and the like come to, as pyinfra hands it to the inventory."""
    original = pyinfra_cli.cli.make_inventory

    def make_inventory(*args: Any, **kwargs: Any) -> Any:
        session.overrides = dict(kwargs.get("override_data") or {})
        return original(*args, **kwargs)

    pyinfra_cli.cli.make_inventory = make_inventory


def _before_connect(fleet: Fleet) -> None:
    params = click.get_current_context().params
    _check_data(params.get("data") or ())
    config = ctx_config.get()
    if params.get("fail_percent") is None:
        # Without -y pyinfra would stop at the first failed box and ask; the others are to finish.
        config.FAIL_PERCENT = None
    state = ctx_state.get()
    original = state.init

    def init(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        state.add_callback_handler(_Callbacks())

    state.init = init
    limit, exclude = list(params.get("limit") or ()), list(params.get("exclude") or ())
    if tuple(params.get("operations") or ())[:1] == ("debug-inventory",):
        fleet.select(limit, exclude)  # it connects to nothing
    else:
        discovery.meet(fleet, limit, exclude, session.overrides, config)


def _check_data(given: Iterable[str]) -> None:
    """Raises ConfigError when --data has a key that is neither a setting nor pyinfra's."""
    known = SSH_KEYS | set(Settings.model_fields)
    unknown = [item.split("=", 1)[0] for item in given if item.split("=", 1)[0] not in known]
    if unknown:
        raise ConfigError(f"--data: unknown key {key!r}{nearest(key, known)}" for key in unknown)
    values = {key: parse_cli_arg(value) for key, _, value in (item.partition("=") for item in given)}
    checked({key: value for key, value in values.items() if key in Settings.model_fields}, "--data")


def _exit() -> None:
    """In place of pyinfra's own, which knows only 0 and 1."""
    session.report()
    code = session.exit_code()
    if code in (DONE, WOULD_CHANGE) and ctx_state.isset() and pyinfra.state.failed_hosts:
        code = BOX_FAILED
    sys.exit(code)


def _interrupted(number: int, frame: FrameType | None) -> None:
    click.echo("gpufleet: interrupted; run the same command again to go on", err=True)
    if ctx_state.isset() and pyinfra.state.initialised:
        for host in list(pyinfra.state.activated_hosts):
            client = getattr(host.connector, "client", None)
            if client:
                client.close()
    for outcome in session.outcomes.values():
        outcome.interrupted = True
    session.report()
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(INTERRUPTED)  # greenlets in the middle of a command would turn SystemExit into a failure of their box


def guarded(action: Callable[[], Any]) -> Callable[..., bool]:
    """A function for pyinfra's FunctionCommand: a BoxError becomes one line and a failed operation."""

    def run(state: State, host: Host) -> bool:
        try:
            action()
        except BoxError as error:
            session.failed(error)
            host.log_styled(str(error), fg="red")
            return False
        except Exception as error:  # whatever it is, it is this box's; the others go on
            cause = f"{type(error).__name__}: {error}"
            session.failed(BoxError(host.name, cause, "see to what it names on the controller, then deploy again"))
            host.log_styled(f"{host.name}: {cause}", fg="red")
            logger.debug("%s", host.name, exc_info=True)
            return False
        return True

    return run
