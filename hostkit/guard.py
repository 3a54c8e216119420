"""Runs the sources of the probe side by side, each in a child of its own with a time limit.

A driver that hangs does so inside the kernel, where no signal reaches: only a process that nobody waits for is safe to
leave behind. A crash of a library stays in its child as well.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from typing import Any, Callable, NamedTuple


class Source(NamedTuple):
    name: str
    read: Callable[[], dict[str, Any]]
    seconds: float


class _Child:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.deadline = time.monotonic() + source.seconds
        self.written = b""
        self.pid, self.pipe = _start(source)


def collect(sources: list[Source]) -> tuple[dict[str, dict[str, Any]], list[dict[str, str]]]:
    """({source: what it read}, [{"source", "message"} of those that failed])."""
    children = [_Child(source) for source in sources]
    late = _listen(children)
    answers, errors = {}, []
    for child in children:
        if child in late:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, os.WNOHANG)
            errors.append(_error(child, f"no answer within {child.source.seconds:g} s"))
            continue
        os.waitpid(child.pid, 0)
        try:
            answer = json.loads(child.written.decode())
        except ValueError:
            errors.append(_error(child, "its process ended before it had answered"))
            continue
        if "error" in answer:
            errors.append(_error(child, answer["error"]))
        else:
            answers[child.source.name] = answer["read"]
    return answers, errors


def _error(child: _Child, message: str) -> dict[str, str]:
    return {"source": child.source.name, "message": message}


def _listen(children: list[_Child]) -> list[_Child]:
    """Take in what the children write, until each has closed its pipe or its time is over; returns the late ones."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.pipe, selectors.EVENT_READ, child)
        late = []
        while selector.get_map():
            nearest = min(key.data.deadline for key in selector.get_map().values())
            for key, _ in selector.select(max(0.0, nearest - time.monotonic())):
                chunk = os.read(key.data.pipe, 65536)
                key.data.written += chunk
                if not chunk:
                    selector.unregister(key.fd)
                    os.close(key.fd)
            for key in list(selector.get_map().values()):
                if key.data.deadline <= time.monotonic():
                    late.append(key.data)
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return late


def _start(source: Source) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        # a child that hangs must not hold the caller's output open: ssh would wait for it
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        try:
            answer: dict[str, Any] = {"read": source.read()}
        except Exception as error:  # whatever a source meets must not lose the others
            answer = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
    finally:
        os._exit(0)
