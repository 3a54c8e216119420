"""The course of a rollout: whose turn it is, whether all still serve between two waves, and what happens when not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyinfra
from gevent.pool import Pool

from gpufleet import gate_spec
from gpufleet.errors import BOX_FAILED, BoxError
from gpufleet.plan import Instance
from gpufleet.waves import NoCanary, Wave
from operations import putting_back
from operations.deployment import Deployment
from operations.run import Stop, session

AT_ONCE = 50
ANSWER_SECONDS = 60
LOG_LINES = 40  # of a failed instance's log, for the report
AGAIN = "see why with `journalctl` on the box, then deploy again"

_boxes: dict[str, Deployment] = {}  # those that may have a turn
_open: list[Wave] = []  # the wave that is under way, and has not been judged yet


def has_turn(box: Deployment, wave: Wave) -> bool:
    """Whether a box is switched in this wave. While nothing is executed yet: whether it is planned to be.

    Stops the run when a kind of box would have to do without its canary.
    """
    name = box.host.name
    _boxes[name] = box
    if not pyinfra.state.is_executing:
        return name in wave.boxes
    if wave.number not in session.turns:
        _begin(wave)
    return name in session.turns[wave.number]


def _begin(wave: Wave) -> None:
    """Settle who has a turn, as the first box of the wave comes here: all earlier waves are over."""
    if not session.turns:
        session.between.append(judge)
        session.ending.insert(0, _finish)
    active = {host.name for host in pyinfra.state.active_hosts}
    gone = {name for name in session.order.candidates if name not in active}
    try:
        session.turns[wave.number] = session.order.now(wave, gone, _switched())
        _open.append(wave)
    except NoCanary as none:
        session.turns[wave.number] = []
        session.stop = _stop(f"the rollout stops before wave {wave.number}: {none}", [none.box])


def _switched() -> list[str]:
    return [name for names in session.turns.values() for name in names]


def judge() -> None:
    """After an operation: is the wave that was under way over, and did all go well? Raises Stop when not."""
    if not _open:
        return
    wave = _open.pop()
    failed = _failed(session.turns[wave.number])
    more = session.to_come()
    if not failed and more:
        _ask_again(_switched())
        failed = _failed(_switched())
    if not failed:
        return
    stop = _stop(
        f"the rollout stopped at {', '.join(failed)} in wave {wave.number} of {wave.of}"
        + (f", and {_count(more)} not touched" if more else ""),
        failed,
    )
    if session.rollout.on_failure == "put back all":
        putting_back.everything(_boxes)
    if more:
        raise stop


def _finish() -> None:
    """Where pyinfra itself ended the run at a failure, no operation followed that would have had the wave judged."""
    if not session.interrupted:
        with suppress(Stop):
            judge()


def _failed(names: Iterable[str]) -> list[str]:
    return [name for name in names if session.of(name).failure]


def _count(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}" if len(names) <= 5 else f"{len(names)} boxes are"


def _stop(message: str, failed: Sequence[str]) -> Stop:
    session.not_reached(f"the rollout stopped at {', '.join(failed)}")
    return Stop(message, BOX_FAILED)


def _ask_again(names: Iterable[str]) -> None:
    """Whether the boxes that were switched serve on; one that does not has failed."""
    asked = [name for name in names if session.of(name).gates]
    for name, error in zip(asked, Pool(AT_ONCE).map(_why_not, asked), strict=True):
        if error:
            session.failed(error)
            _boxes[name].host.log_styled(str(error), fg="red")


def _why_not(name: str) -> BoxError | None:
    box = _boxes[name]
    spec = [_address(instance) for instance in box.plan.instances if instance.name in session.of(name).gates]
    try:
        answers = box.call("serving", {"instances": spec}, seconds=ANSWER_SECONDS)["instances"]
    except BoxError as error:
        return error
    for instance, found in answers.items():
        if not found["serves"]:
            return BoxError(name, f"{instance} serves no more after it was switched: {found['why']}", AGAIN)
    return None


def _address(instance: Instance) -> dict[str, Any]:
    return {"name": instance.name, "host": gate_spec.host(instance), "port": instance.port}


def failed_on(box: Deployment, instance: str, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Make a call that switches an instance. When it fails, the report gets the log's end, and what serves now."""
    try:
        return call()
    except BoxError:
        outcome = session.of(box.host.name)
        planned = [_address(each) for each in box.plan.instances if each.name == instance]
        with suppress(BoxError):
            found = box.call("serving", {"instances": planned}, seconds=ANSWER_SECONDS)["instances"][instance]
            outcome.serves[instance] = found["current"]
        with suppress(BoxError):
            spec = {"lines": 0, "instance": instance, "log": LOG_LINES}
            outcome.log = "\n".join(box.call("journal", spec, seconds=ANSWER_SECONDS)["log"])
        raise
