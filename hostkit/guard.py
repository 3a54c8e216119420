"""Runs the sources of the probe in children with a time limit for each: side by side what takes long.

A driver that hangs does so inside the kernel, where no signal reaches: only a process that nobody waits for is safe to
leave behind. A crash of a library stays in its child as well. What a source had learned before is kept in either case.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_PAGE = 128
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


class Source:
    """+ seconds: that it may take"""

    def __init__(self, name: str, read: Callable[[Tell], dict[str, Any]], seconds: float) -> None:
        self.name, self.read, self.seconds = name, read, seconds


class _Child:
    """One process that reads its sources one after the other; `at` is the one it is at, by the answers that came."""

    def __init__(self, sources: list[Source]) -> None:
        self.sources, self.at = sources, 0
        self.answers: list[dict[str, Any]] = [{} for _ in sources]
        self.written = bytearray()
        self.page = mmap.mmap(-1, _PAGE)
        self.pid, self.pipe = _start(sources, self.page)
        self.deadline = time.monotonic() + sources[0].seconds

    @property
    def over(self) -> bool:
        return self.at == len(self.sources)

    def heard(self, chunk: bytes) -> None:
        """More of what it writes: lines; one that was cut off says nothing."""
        *lines, rest = (bytes(self.written) + chunk).split(b"\n")
        self.written = bytearray(rest)
        for line in lines:
            told = json.loads(line.decode())
            self.answers[self.at].update(told)
            if "known" not in told:
                self.at += 1
                if not self.over:
                    self.deadline = time.monotonic() + self.sources[self.at].seconds

    def doing(self) -> str:
        """` (in nvmlInit)`; empty when it has not said."""
        text = self.page[:].split(b"\0", 1)[0].decode("utf-8", "replace")
        return f" (in {text})" if text else ""


def collect(*groups: list[Source]) -> tuple[dict[str, dict[str, Any]], list[dict[str, str]]]:
    """({source: what it read}, [{"source", "message"} of those that failed]); one may be in both, with a part.

    + groups: each is read in a child of its own, its sources one after the other: a child costs more than most of
      them. Where one does not come to its end, those after it go on in another child.
    """
    answers: dict[str, dict[str, Any]] = {}
    errors: list[dict[str, str]] = []
    left = [group for group in groups if group]
    while left:
        children = []
        for group in left:
            try:
                children.append(_Child(group))
            except OSError as error:  # no more processes, or no more memory
                errors += [_error(source, f"{type(error).__name__}: {error}") for source in group]
        late = _listen(children)
        left = []
        for child in children:
            _take(child, child in late, answers, errors)
            if child.sources[child.at + 1 :]:
                left.append(child.sources[child.at + 1 :])
    return answers, errors


def _take(child: _Child, late: bool, answers: dict[str, dict[str, Any]], errors: list[dict[str, str]]) -> None:
    """What a child has answered, and why the source that it was at has not."""
    for number, source in enumerate(child.sources):
        told = child.answers[number]
        if "read" in told or "known" in told:
            answers[source.name] = told["read"] if "read" in told else told["known"]
        if "error" in told:
            errors.append(_error(source, told["error"]))
    if late:
        _end(child.pid)
        source = child.sources[child.at]
        errors.append(_error(source, f"no answer within {source.seconds:g} s{child.doing()}"))
        return
    _, status = os.waitpid(child.pid, 0)
    if not child.over:
        by = f" by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else ""
        message = f"its process was ended{by} before it had answered{child.doing()}"
        errors.append(_error(child.sources[child.at], message))


def _error(source: Source, message: str) -> dict[str, str]:
    return {"source": source.name, "message": message}


def _end(pid: int) -> None:
    """With the programs it may have started; not waited for."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # no group yet, or gone by itself
            pass
    os.waitpid(pid, os.WNOHANG)


def _listen(children: list[_Child]) -> list[_Child]:
    """Take in what the children write, until each has answered all, ended, or its time is over; returns the late."""
    open_ = {child.pipe: child for child in children}
    late = []
    while open_:
        nearest = min(child.deadline for child in open_.values())
        ready, _, _ = select.select(list(open_), [], [], max(0.0, nearest - time.monotonic()))
        over = []
        for pipe in ready:
            chunk = os.read(pipe, 65536)
            open_[pipe].heard(chunk)
            if not chunk or open_[pipe].over:
                over.append(pipe)
        for pipe, child in open_.items():
            if pipe not in over and child.deadline <= time.monotonic():
                late.append(child)
                over.append(pipe)
        for pipe in over:
            del open_[pipe]
            os.close(pipe)
    return late


def _start(sources: list[Source], page: mmap.mmap) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.setpgid(0, 0)
        # a child that hangs must not hold the caller's output open: ssh would wait for it
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        tell = Tell(writing, page)
        for source in sources:
            signal.setitimer(signal.ITIMER_REAL, source.seconds + _GRACE)
            tell.doing("")
            _write(writing, _read(source, tell))
    finally:
        os._exit(0)


def _read(source: Source, tell: Tell) -> dict[str, Any]:
    try:
        return {"read": source.read(tell)}
    except Exception as error:  # whatever a source meets must not lose the others
        return {"error": f"{type(error).__name__}: {error}"}


def _write(pipe: int, told: dict[str, Any]) -> None:
    line = json.dumps(told).encode() + b"\n"
    while line:
        line = line[os.write(pipe, line) :]
