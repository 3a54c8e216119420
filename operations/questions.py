"""Verbs of the kit on boxes, by processes that stay for the next call: one costs a box more than most verbs do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyinfra.api.host import Host

from operations.remote_shell import Command, complain

END = '{"event": "end"'  # hostkit.questions
IDLE_SECONDS = 1800  # half of the time after which one that is asked nothing ends
LAST = ("apt", "remove")  # what these change may be Python, or the kit itself

_idle: dict[str, list[tuple[float, Command]]] = {}  # by box, since when


def ask(
    host: Host, verb: str, spec: Mapping[str, Any], seconds: float | None, begin: Callable[[], Command]
) -> Iterator[str]:
    """Yield the lines that a verb prints. Raises BoxError.

    + seconds: how long it may be silent; None: for ever
    + begin: starts a process of the kit's verb `questions` on the box
    """
    command = _waiting(host) or begin()
    question = json.dumps({"verb": verb, "spec": spec}).encode() + b"\n"
    end: dict[str, Any] = {}
    try:
        for line in command.lines([question], seconds, more=True):
            if line.startswith(END):
                end = json.loads(line)
                break
            yield line
        else:
            command.end()
    finally:
        if end and verb not in LAST:
            _idle.setdefault(host.name, []).append((time.monotonic(), command))
        else:
            command.close()
    if end.get("status"):
        complain(host, end["said"], command.password)


def _waiting(host: Host) -> Command | None:
    """A process that answered before and waits; the others stay for calls meanwhile."""
    idle = _idle.get(host.name, [])
    while idle:
        since, command = idle.pop()
        if time.monotonic() - since < IDLE_SECONDS and command.runs_on(host):
            return command
        command.close()
    return None
