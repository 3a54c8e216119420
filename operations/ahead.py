"""Downloads beside apt: what a box needs of files begins to come when apt begins to install, and who needs it waits.

First the files of its runtimes, into the box's store; then those of its models, into the controller's, where one line
brings them for all boxes: they come while runtimes are installed and compiled.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gevent

from operations.run import session

if TYPE_CHECKING:
    from operations.deployment import Deployment


@dataclass(frozen=True)
class _Coming:
    """The greenlets of a box. What the first one meets is kept, for who waits for it."""

    runtimes: gevent.Greenlet
    models: gevent.Greenlet


_coming: dict[str, _Coming] = {}  # by box


def begin(box: Deployment) -> None:
    """Begin with what this box lacks, once; does not wait for it."""
    if box.host.name in _coming or not (box.changes.runtimes or box.changes.models):
        return
    if not _coming:
        session.ending.append(end)
    runtimes = gevent.spawn(_runtimes, box)
    _coming[box.host.name] = _Coming(runtimes, gevent.spawn(_models, box, runtimes))


def wait(box: Deployment) -> None:
    """Wait for the files of the box's runtimes, where they have begun to come. Raises what came in between."""
    coming = _coming.get(box.host.name)
    failed = coming.runtimes.get() if coming else None
    if isinstance(failed, BaseException):
        raise failed


def stop(name: str) -> None:
    """This box has failed: nothing more is to come to it."""
    if coming := _coming.get(name):
        gevent.killall([coming.runtimes, coming.models], block=False)


def end() -> None:
    """The run is over; what came so far is kept."""
    for name in list(_coming):
        stop(name)


def _runtimes(box: Deployment) -> Exception | None:
    from operations.runtime_install import bring_all  # much of the start-up time, which most runs do not need

    try:
        bring_all(box)
    except Exception as error:
        return error
    return None


def _models(box: Deployment, first: gevent.Greenlet) -> None:
    first.join()  # they share the line
    if first.value is not None or not box.changes.models:
        return
    from operations.model_put import get_all

    with suppress(Exception):  # who needs them meets it again, and tells it
        get_all(box)
