"""Verbs of the kit on boxes, by processes that stay for the next call: one costs a box more than most verbs do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyinfra.api.host import Host

from gpufleet.errors import BoxError
from operations.remote_shell import Command, complain

READY, AGAIN, END = '{"event": "ready"}', '{"event": "again"}', '{"event": "end"'  # hostkit.questions
READY_SECONDS = 60
IDLE_SECONDS = 1800  # half of the time after which one that is asked nothing ends

_waiting: dict[str, list[tuple[float, Command]]] = {}  # by box, since when


def ask(
    host: Host, verb: str, spec: Mapping[str, Any], seconds: float | None, begin: Callable[[], Command]
) -> Iterator[str]:
    """Yield the lines that a verb prints. Raises BoxError.

    + seconds: how long it may be silent; None: for ever
    + begin: starts a process of the kit's verb `questions` on the box
    """
    question = json.dumps({"verb": verb, "spec": spec}).encode() + b"\n"
    end: dict[str, Any] = {}
    while not end:
        command = _found(host) or _admitted(begin())
        try:
            for line in command.lines([question], seconds, more=True):
                if line == AGAIN:
                    break
                if line.startswith(END) and (end := _read(line)):
                    break
                if not line.endswith(READY):
                    yield line
            else:
                command.end()
                return
        finally:
            if end:
                _waiting.setdefault(host.name, []).append((time.monotonic(), command))
            else:
                command.close()
    if end.get("status"):
        complain(host, end["said"], command.password)


def close_waiting(host: Host) -> bool:
    """End the box's processes that nobody asks now; whether there were any."""
    commands = _waiting.pop(host.name, [])
    for _, command in commands:
        command.close()
    return bool(commands)


def _found(host: Host) -> Command | None:
    """A process that answered before and waits; the others stay for calls meanwhile."""
    waiting = _waiting.get(host.name, [])
    while waiting:
        since, command = waiting.pop()
        if time.monotonic() - since < IDLE_SECONDS and command.runs_on(host):
            return command
        command.close()
    return None


def _admitted(command: Command) -> Command:
    """The process, once sudo has taken the password: it would take what comes next for another try of a wrong one."""
    if not command.password:
        return command
    try:
        try:
            for line in command.lines([], READY_SECONDS, more=True):
                if line.endswith(READY):  # after what the login's own files print
                    return command
        except BoxError as error:
            if not isinstance(error.__cause__, TimeoutError):
                raise
            command.no_more()  # then sudo says why
        command.end()
        raise BoxError(command.host.name, f"sudo is silent for {READY_SECONDS} s", "see what the box is busy with")
    except BaseException:
        command.close()
        raise


def _read(line: str) -> dict[str, Any]:
    """Nothing of a line that broke off in the middle."""
    try:
        return dict(json.loads(line))
    except ValueError:
        return {}
