"""Runs the sources of the probe side by side, in children with a time limit: what may hang in one of its own.

A driver that hangs does so inside the kernel, where no signal reaches: only a process that nobody waits for is safe to
leave behind. A crash of a library stays in its child as well. What a source had learned before is kept in either case.
"""

from __future__ import annotations

import json
import mmap
import os
import selectors
import signal
import time
from typing import Any, Callable, NamedTuple

_PAGE = 128
_GROUP = "together"
# for a child whose parent is gone before it could end it
_GRACE = 2.0


class Tell:
    """A source's way to say, before it has read all, what it knows and what it is about to do."""

    def __init__(self, pipe: int, page: mmap.mmap) -> None:
        self._pipe, self._page = pipe, page

    def known(self, facts: dict[str, Any]) -> None:
        """What it would answer if nothing more came; replaces what it told before."""
        _write(self._pipe, {"known": facts})

    def doing(self, what: str) -> None:
        """What to name when it never comes back. In shared memory: there are hundreds of such steps."""
        text = what.encode()[: _PAGE - 1]
        self._page[: len(text) + 1] = text + b"\0"


class Untold(Tell):
    """For a source that is read without a child: nobody listens."""

    def __init__(self) -> None:
        pass

    def known(self, facts: dict[str, Any]) -> None:
        pass

    def doing(self, what: str) -> None:
        pass


class Source(NamedTuple):
    name: str
    read: Callable[[Tell], dict[str, Any]]
    seconds: float


class _Child:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.deadline = time.monotonic() + source.seconds
        self.written = bytearray()
        self.page = mmap.mmap(-1, _PAGE)
        self.pid, self.pipe = _start(source, self.page)

    def doing(self) -> str:
        """` (in nvmlInit)`; empty when it has not said."""
        text = self.page[:].split(b"\0", 1)[0].decode("utf-8", "replace")
        return f" (in {text})" if text else ""


def collect(
    sources: list[Source], together: list[Source] | None = None
) -> tuple[dict[str, dict[str, Any]], list[dict[str, str]]]:
    """({source: what it read}, [{"source", "message"} of those that failed]); one may be in both, with a part.

    + together: sources that only read small files, which one child does one after the other: a child costs more than
      most of them. Where it does not get to its end, each of them is read again in a child of its own.
    """
    if not together:
        return _collect(sources)
    limit = max(source.seconds for source in together)
    answers, errors = _collect([*sources, Source(_GROUP, lambda _: _read_all(together), limit)])
    errors = [error for error in errors if error["source"] != _GROUP]
    if _GROUP in answers:
        read = answers.pop(_GROUP)
        failed = [{"source": name, "message": told["error"]} for name, told in read.items() if "error" in told]
        answers.update((name, told["read"]) for name, told in read.items() if "read" in told)
        return answers, errors + failed
    alone, failed = _collect(together)
    return {**answers, **alone}, errors + failed


def _read_all(sources: list[Source]) -> dict[str, Any]:
    return {source.name: _read(source, Untold()) for source in sources}


def _read(source: Source, tell: Tell) -> dict[str, Any]:
    try:
        return {"read": source.read(tell)}
    except Exception as error:  # whatever a source meets must not lose the others
        return {"error": f"{type(error).__name__}: {error}"}


def _collect(sources: list[Source]) -> tuple[dict[str, dict[str, Any]], list[dict[str, str]]]:
    answers, errors, children = {}, [], []
    for source in sources:
        try:
            children.append(_Child(source))
        except OSError as error:  # no more processes, or no more memory
            errors.append({"source": source.name, "message": f"{type(error).__name__}: {error}"})
    late = _listen(children)
    for child in children:
        told = _lines(child.written)
        if "read" in told or "known" in told:
            answers[child.source.name] = told["read"] if "read" in told else told["known"]
        if child in late:
            _end(child.pid)
            errors.append(_error(child, f"no answer within {child.source.seconds:g} s{child.doing()}"))
            continue
        _, status = os.waitpid(child.pid, 0)
        if "error" in told:
            errors.append(_error(child, told["error"]))
        elif "read" not in told:
            by = f" by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else ""
            errors.append(_error(child, f"its process was ended{by} before it had answered{child.doing()}"))
    return answers, errors


def _lines(written: bytes | bytearray) -> dict[str, Any]:
    """The last word, and what was known before it; a line that was cut off is none."""
    told: dict[str, Any] = {}
    for line in bytes(written).split(b"\n")[:-1][-2:]:
        told.update(json.loads(line.decode()))
    return told


def _error(child: _Child, message: str) -> dict[str, str]:
    return {"source": child.source.name, "message": message}


def _end(pid: int) -> None:
    """With the programs it may have started; not waited for."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # no group yet, or gone by itself
            pass
    os.waitpid(pid, os.WNOHANG)


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


def _start(source: Source, page: mmap.mmap) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.setpgid(0, 0)
        signal.setitimer(signal.ITIMER_REAL, source.seconds + _GRACE)
        # a child that hangs must not hold the caller's output open: ssh would wait for it
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        _write(writing, _read(source, Tell(writing, page)))
    finally:
        os._exit(0)


def _write(pipe: int, told: dict[str, Any]) -> None:
    line = json.dumps(told).encode() + b"\n"
    while line:
        line = line[os.write(pipe, line) :]
