"""What pyinfra tells of its course: failures in one line each, the steps for the report, and where a run is stopped."""

from __future__ import annotations

import time

import gevent
from pyinfra.api.host import Host
from pyinfra.api.state import BaseStateCallback, State

from gpufleet.errors import BoxError
from gpufleet.report import Step
from operations import quiet
from operations.run import session


class Callbacks(BaseStateCallback):
    @staticmethod
    def host_connect_error(state: State, host: Host, error: Exception) -> None:
        """pyinfra reports a box that cannot be reached in several lines; here it becomes one with a remedy."""
        from operations.unreachable import remedy  # most runs do not need it

        cause = " ".join(str(error).split())
        session.failed(BoxError(host.name, cause, remedy(host.name, host.data.dict(), cause)))

    @staticmethod
    def operation_start(state: State, op_hash: str) -> None:
        _wait_for_the_end()
        quiet.during(_name(state, op_hash) in {wave.title for wave in session.order.waves})

    @staticmethod
    def operation_host_start(state: State, host: Host, op_hash: str) -> None:
        if op_hash in state.ops[host]:
            session.of(host.name).steps.append(Step(_name(state, op_hash), time.time()))

    @staticmethod
    def operation_host_success(state: State, host: Host, op_hash: str, retry_count: int = 0) -> None:
        _ended(host, "done")

    @staticmethod
    def operation_host_error(
        state: State, host: Host, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        _ended(host, "failed")
        from operations import ahead  # most runs do not need it

        ahead.stop(host.name)
        session.failed(
            BoxError(host.name, f"{_name(state, op_hash)} failed", "read the lines above, then deploy again")
        )

    @staticmethod
    def operation_end(state: State, op_hash: str) -> None:
        """Raises Stop, which ends the run before the next operation."""
        _wait_for_the_end()
        # pyinfra lists those, too, that --limit leaves out: of them there is nothing to say.
        for host in [host for host, operations in state.ops.items() if op_hash in operations]:
            meta, steps = state.ops[host][op_hash].operation_meta, session.of(host.name).steps
            if meta.is_complete() and steps:
                steps[-1].changed = meta.did_change()
        if session.stop:
            raise session.stop
        for look in session.between:
            look()


def _wait_for_the_end() -> None:
    """After Ctrl-C the end is under way in another greenlet, see operations.ending: nothing new begins."""
    while session.interrupted:
        gevent.sleep(1)


def _ended(host: Host, outcome: str) -> None:
    steps = session.of(host.name).steps
    if steps:
        steps[-1].seconds, steps[-1].outcome = round(time.time() - steps[-1].began, 1), outcome


def _name(state: State, op_hash: str) -> str:
    return ", ".join(sorted(state.get_op_meta(op_hash).names))
