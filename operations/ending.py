"""How a run ends: exit code and report, whatever ends it; what it holds on boxes is let go of before they are left."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Any

import click
import gevent
import pyinfra
import pyinfra_cli.cli
from pyinfra.context import ctx_state

from gpufleet import reports
from gpufleet.errors import BOX_FAILED, DONE, INTERRUPTED, WOULD_CHANGE
from gpufleet.report import show
from operations import hidden
from operations.run import session

LEAVE_SECONDS = 15  # for letting go of the boxes after Ctrl-C
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def install() -> None:
    for number in SIGNALS:
        # Ignored: as nohup has it, and a shell for what it puts in the background.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupted)
    atexit.register(_at_exit)
    pyinfra_cli.cli._exit = _exit
    original = pyinfra_cli.cli.disconnect_all

    def disconnect_all(state: Any) -> None:
        """However the run ended: an exception comes by here, too."""
        session.end()
        original(state)

    pyinfra_cli.cli.disconnect_all = disconnect_all


def _exit() -> None:
    """In place of pyinfra's own, which knows only 0 and 1."""
    session.end()
    code = session.exit_code()
    if code in (DONE, WOULD_CHANGE) and ctx_state.isset() and pyinfra.state.failed_hosts:
        code = BOX_FAILED
    report(code)
    sys.exit(code)


def _at_exit() -> None:
    """After a Stop or an error of pyinfra's, which have an exit code of their own."""
    error = session.ended_by
    report(error.exit_code if error else BOX_FAILED, error.message if error else "")


def report(code: int, message: str = "") -> None:
    """The summary on standard error, and the run's file; once."""
    if session.shown:
        return
    session.shown = True
    kept = _keep(code, message)
    if session.outcomes:
        show(list(session.outcomes.values()), session.is_dry())
    click.echo(kept, nl=bool(kept), err=True)


def _keep(code: int, message: str) -> str:
    """Write the run's file, and say where; never raises, for it is the last that is done."""
    if not session.fleet or not session.deploys:
        return ""
    run = reports.Run(
        id=session.id, began=session.began, exit_code=code, message=message, dry=session.is_dry(),
        inventory=str(session.fleet.inventory), limit=session.limit, exclude=session.exclude,
        order=session.order, turns=session.turns,
    )  # fmt: skip
    try:
        page = reports.document(run, list(session.outcomes.values()))
        path = reports.keep(session.fleet.reports_folder, session.id, page, hidden.of(session))
        return f"\nreport: {os.path.relpath(path)}"
    except Exception as error:
        return f"gpufleet: the run's report cannot be kept: {error or type(error).__name__}"


def _interrupted(number: int, frame: FrameType | None) -> None:
    if session.interrupted:  # asked for twice: at once, but for the report, which needs no box
        try:
            report(INTERRUPTED, "interrupted")
        finally:
            os._exit(INTERRUPTED)
    session.interrupted = True
    click.echo("gpufleet: interrupted; run the same command again to go on", err=True)
    for outcome in session.outcomes.values():
        outcome.interrupted = True
    if not session.ending:
        _leave()
    # What holds something on the boxes talks to them, which a signal handler cannot: another greenlet does it, for so
    # long and no longer. Meanwhile nothing new begins, see operations.callbacks.
    signal.signal(signal.SIGALRM, lambda *_: _leave())
    signal.alarm(LEAVE_SECONDS)
    gevent.spawn(_let_go)


def _let_go() -> None:
    pool = pyinfra.state.pool
    if pool is not None:
        pool.kill(block=False)
    session.end()
    _leave()


def _leave() -> None:
    try:
        with suppress(Exception):
            _close()
        report(INTERRUPTED, "interrupted")
        sys.stderr.flush()
        sys.stdout.flush()
    finally:
        os._exit(INTERRUPTED)  # greenlets in the middle of a command would turn SystemExit into a failure of their box


def _close() -> None:
    if ctx_state.isset() and pyinfra.state.initialised:
        for host in list(pyinfra.state.activated_hosts):
            client = getattr(host.connector, "client", None)
            if client:
                client.close()
