"""This run of deploy.py: what became of each box, what stops it, what is done between operations and at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

import click
import pyinfra
from pyinfra.api.command import FunctionCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.context import ctx_state
from pyinfra_cli.exceptions import CliError

from gpufleet.errors import BOX_FAILED, DONE, WOULD_CHANGE, BoxError
from gpufleet.fleet import Fleet
from gpufleet.report import Outcome
from gpufleet.settings import Rollout
from gpufleet.waves import Order


class Stop(CliError, PyinfraError):
    """Ends the run cleanly with an exit code of its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def show(self, file: Any = None) -> None:
        session.ended_by = self
        click.echo(f"gpufleet: {self.message}", err=True)


@dataclass
class Session:
    """What became of each box in this run.

    + between: called after each operation, when all its boxes are done; may raise Stop
    + ending: called once when the run ends however it does, while boxes are still connected
    """

    began: float = field(default_factory=time.time)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)  # the data that the command line gives every box
    fleet: Fleet | None = None
    deploys: bool = False  # and does not only run a command
    limit: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)
    turns: dict[int, list[str]] = field(default_factory=dict)  # the boxes that were switched, by number of the wave
    rollout: Rollout = field(default_factory=Rollout)
    order: Order = field(default_factory=Order)
    stop: Stop | None = None  # ends the run after the operation that is under way
    ended_by: Stop | None = None
    between: list[Callable[[], None]] = field(default_factory=list)
    ending: list[Callable[[], None]] = field(default_factory=list)
    shown: bool = False
    dry: bool = False
    asks: bool = False  # whether pyinfra asks before it changes anything
    interrupted: bool = False

    def __post_init__(self) -> None:
        self.id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(self.began))}-{token_hex(2)}"

    def of(self, box: str) -> Outcome:
        return self.outcomes.setdefault(box, Outcome(box))

    def failed(self, error: BoxError) -> None:
        outcome = self.of(error.box)
        if not outcome.failure:
            outcome.failure = str(error).removeprefix(f"{error.box}: ")
            outcome.cause, outcome.remedy = error.cause, error.remedy

    def exit_code(self) -> int:
        """When nothing stopped the run: 1 when a box failed or was left out, 5 when a dry run found changes, else 0."""
        outcomes = self.outcomes.values()
        if any(outcome.failure or outcome.refused for outcome in outcomes):
            return BOX_FAILED
        if self.is_dry() and any(outcome.changes for outcome in outcomes):
            return WOULD_CHANGE
        return DONE

    def is_dry(self) -> bool:
        """A run that its user did not confirm has done as little as a dry one."""
        return self.dry or not (ctx_state.isset() and pyinfra.state.is_executing)

    def to_come(self) -> list[str]:
        """The boxes that are to be switched and have had no turn yet."""
        had = {name for names in self.turns.values() for name in names}
        return [name for name in self.order.candidates if name not in had and not self.of(name).failure]

    def not_reached(self, why: str) -> None:
        for name in self.to_come():
            self.of(name).untouched = self.of(name).untouched or why

    def end(self) -> None:
        """Do once what is to be done at every end. What fails there is told, and hides nothing."""
        while self.ending:
            action = self.ending.pop(0)
            try:
                action()
            except Exception as error:
                click.echo(f"gpufleet: at the end of the run: {type(error).__name__}: {error}", err=True)
        if not self.is_dry() and not self.interrupted:
            self.not_reached("the run ended before its turn")


session = Session()
logger = logging.getLogger(__name__)


def guarded(action: Callable[[], Any]) -> Callable[..., bool]:
    """A function for pyinfra's FunctionCommand: a BoxError becomes one line and a failed operation."""

    def run(state: State, host: Host) -> bool:
        try:
            action()
        except Stop as stop:  # of the run, which is no failure of this box; see operations.callbacks
            session.stop = session.stop or stop
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


def command(action: Callable[[], Any]) -> FunctionCommand:
    return FunctionCommand(guarded(action), (), {})
