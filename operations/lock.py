"""One deploy per fleet: a lock on every box of the run, held from before the first change until the run ends.

It is a lease that is renewed while this process lives: what a dead one held is free again soon, and at once for a run
on the same controller. The first box in the order of names decides between two that come at the same moment; between
two of one controller for different boxes, see operations/claim.py.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import click
import gevent
from gevent.lock import RLock
from gevent.pool import Pool
from pyinfra.api.host import Host
from pyinfra.api.operation import operation

from gpufleet.errors import LOCKED, BoxError
from gpufleet.reports import moment, who
from operations import claim, holder, lease, looks
from operations.deployment import Commands, Deployment
from operations.run import Stop, session

AT_ONCE = 50
_turn = RLock()
_id: list[str] = []  # of this run's lock, once it has been asked for
_asked: list[Host] = []  # the boxes that may have it
_renewing: list[gevent.Greenlet] = []


@operation()
def taken(box: Deployment) -> Commands:
    """
    Hold the lock of the fleet; when another deploy has it, nothing is changed, and the run ends with exit code 4.
    A run that changes nothing takes none.

    + box: the deployment of this box

    **Example:**

    .. code:: python

        lock.taken(name="Lock", box=box)
    """
    if box.changes:
        yield from box.command(partial(_hold, box))
    else:
        box.host.noop("nothing is to be changed here")


def _hold(box: Deployment) -> None:
    """Raises Stop when another deploy has the lock, BoxError when this box could not be asked for it."""
    take()
    outcome = session.of(box.host.name)
    if outcome.failure:
        raise BoxError(box.host.name, outcome.cause, outcome.remedy)


def take() -> None:
    """Take the lock on all boxes of the run, once for all that come here. Raises Stop when another deploy has it."""
    with _turn:
        if not _id:
            _id.append(f"{holder.place()}-{uuid.uuid4().hex}")
            session.ending.append(release)
            _claim()
            _take_all(looks.active_hosts())
            _renewing.append(gevent.spawn(_renew))


def _claim() -> None:
    """Raises Stop when another deploy of this inventory runs on this controller."""
    fleet = session.fleet
    found = claim.other(fleet.reports_folder, {**_me(), "since": moment(time.time())}) if fleet else None
    if found:
        session.stop = holder.refusal("the fleet", found)
        raise session.stop


def _take_all(hosts: Iterable[Host]) -> None:
    waiting = sorted(hosts, key=lambda host: host.name)
    while waiting:
        first = waiting.pop(0)
        _one(first)
        if not session.of(first.name).failure:  # else the next one decides
            break
    if not session.stop:
        Pool(AT_ONCE).map(_one, waiting)
    if session.stop:
        raise session.stop


def _one(host: Host) -> None:
    _asked.append(host)
    try:
        held = lease.take(host, _id[0], _me(), host.log)
        if held["id"] != _id[0]:
            session.stop = session.stop or holder.refusal(host.name, held)
    except BoxError as error:
        session.failed(error)


def _me() -> dict[str, Any]:
    return {"who": who(), "host": socket.gethostname(), "pid": os.getpid(), "run": session.id, "what": _what()}


def _what() -> str:
    path = session.fleet.inventory if session.fleet else "deploy.py"
    return f"deploy of {path}" + "".join(f" --limit {word}" for word in session.limit)


def _renew() -> None:
    """Until the run ends. A box that does not answer is asked again; one that has another's lock ends the run."""
    while True:
        gevent.sleep(lease.RENEW_SECONDS)
        Pool(AT_ONCE).map(_renew_one, list(_asked))


def _renew_one(host: Host) -> None:
    with suppress(Exception):  # what is wrong with the box shows in what is done there
        other = lease.renew(host, _id[0], _me())
        if other:
            message = (
                f"{host.name}: the lock of this run was broken, and {holder.words(other)} has it now; the run stops"
            )
            session.stop = session.stop or Stop(message, LOCKED)


def release() -> None:
    """Let go of the lock on every box that may have it, as far as they answer in time; the others keep it until its
    lease is over."""
    for greenlet in _renewing:
        greenlet.kill(block=False)
    with gevent.Timeout(lease.RELEASE_SECONDS, False):
        Pool(AT_ONCE).map(_release_one, _asked)


def _release_one(host: Host) -> None:
    try:
        lease.release(host, _id[0])
    except Exception as error:
        click.echo(f"gpufleet: {host.name} keeps the lock until its lease is over ({error})", err=True)
