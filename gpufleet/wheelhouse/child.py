"""Runs gpufleet.hub_child, and ends it when it hangs: what brings nothing for a while is killed."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gpufleet.hub_child import clean
from gpufleet.wheelhouse.pieces import Sums

STALL_SECONDS = 60.0  # GPUFLEET_STALL_SECONDS in its place
LEAST = 64 << 10  # bytes: a line that brings less in that time stands still
BEAT_SECONDS = 0.5
FOLDER = Path(__file__).parents[2]  # what `gpufleet` is imported from


class ChildError(Exception):
    """What the child says went wrong. + kind: of hub_child.Failed, or `stalled`, `died`"""

    def __init__(self, kind: str, said: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(said)
        self.kind, self.status, self.retry_after = kind, status, retry_after


@dataclass
class Watch:
    """When something last went on."""

    seconds: float
    since: float
    mark: int = 0

    def at(self, done: int, now: float) -> None:
        if done >= self.mark + LEAST:
            self.mark, self.since = done, now

    def over(self, now: float) -> bool:
        return now - self.since > self.seconds


def patience() -> float:
    """Seconds without a byte after which a connection is given up."""
    with contextlib.suppress(ValueError):
        return max(0.1, float(os.environ.get("GPUFLEET_STALL_SECONDS", "")))
    return STALL_SECONDS


def run(told: Mapping[str, Any], beat: Callable[[int | None], object], environment: Mapping[str, str]) -> Sums:
    """Have a child do what it is told, see there; what the file is now.

    + beat: called with the bytes that came, and with None while nothing does; what it raises ends the child
    + environment: more variables than this process has
    Raises ChildError.
    """
    seconds = patience()
    child = subprocess.Popen(
        [sys.executable, "-m", "gpufleet.hub_child"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment, "PYTHONPATH": _path()},
    )  # fmt: skip
    assert child.stdin and child.stdout and child.stderr
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    errors: list[str] = []
    readers = [
        threading.Thread(target=_read, args=(child.stdout, lines.put), daemon=True),
        threading.Thread(target=_read, args=(child.stderr, lambda line: errors.append(line or "")), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        with contextlib.suppress(BrokenPipeError), child.stdin:  # one that died at once says why on stderr
            json.dump({**told, "timeout": seconds, "parent": os.getpid()}, child.stdin)
        return _follow(lines, Watch(seconds, time.monotonic()), beat)
    except EOFError:
        child.wait()
        readers[1].join(5)
        said = clean(next((line for line in reversed(errors) if line.strip()), f"with {child.returncode}"))
        raise ChildError("died", f"the process that fetches ended: {said}") from None
    finally:
        child.kill()
        child.wait()
        for reader in readers:
            reader.join(5)
        child.stdout.close()
        child.stderr.close()


def _path() -> str:
    """The child imports this gpufleet, from wherever it is called."""
    return os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))


def _read(stream: IO[str], put: Callable[[str | None], object]) -> None:
    with contextlib.suppress(ValueError, OSError):
        for line in stream:
            put(line)
    put(None)


def _follow(lines: queue.SimpleQueue[str | None], watch: Watch, beat: Callable[[int | None], object]) -> Sums:
    """Raises ChildError, EOFError when the child ended without a word."""
    while True:
        try:
            line = lines.get(timeout=BEAT_SECONDS)
        except queue.Empty:
            beat(None)
            if watch.over(time.monotonic()):
                raise ChildError("stalled", f"nothing came for {watch.seconds:g} s") from None
            continue
        if line is None:
            raise EOFError
        try:
            said = json.loads(line)
        except ValueError:  # it was killed in the midst of a word
            raise EOFError from None
        if (done := said.get("done")) is not None:
            return Sums(done["sha256"], done["size"], tuple(done["pieces"]))
        if (error := said.get("error")) is not None:
            raise ChildError(error["kind"], error["said"], error["status"], error.get("retry_after"))
        now = time.monotonic()
        if "at" in said:
            watch.at(said["at"], now)
            beat(said["at"])
        else:  # it has begun, or reads what came
            watch.since = now
            beat(None)
        if watch.over(now):
            raise ChildError("stalled", f"less than {LEAST >> 10} KiB came in {watch.seconds:g} s")
