"""One run of a peer, measured: seconds, processor time, memory; or, in a run of its own, bytes and round trips."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

SAMPLE_SECONDS = 0.1
TAIL = 3000  # characters of a failed run that are shown


@dataclass(frozen=True)
class Command:
    arguments: Sequence[str]
    folder: Path
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Run:
    """`cpu`: user and system seconds of the controller's processes; `rss_mib`: of all of them at their most."""

    seconds: float
    cpu: float
    rss_mib: float | None = None


class Failed(Exception):
    """A run that did not end with 0: what it printed last."""


def run(command: Command) -> Run:
    """Run it once. Raises Failed."""
    return _run(command, None)


def run_watched(command: Command) -> Run:
    """The same with its memory, which is looked at all the time: its seconds are no measure."""
    peak: list[float] = [0.0]

    def watch(pid: int, over: threading.Event) -> None:
        while not over.wait(SAMPLE_SECONDS):
            peak[0] = max(peak[0], tree_mib(pid))

    return replace(_run(command, watch), rss_mib=round(peak[0], 1))


def _run(command: Command, watch: Callable[[int, threading.Event], None] | None) -> Run:
    # Byte code is kept as on any owner's machine, whatever the shell that measures says.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    over = threading.Event()
    began = time.perf_counter()
    process = subprocess.Popen(
        command.arguments,
        cwd=command.folder,
        env={**environment, **command.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    thread = threading.Thread(target=watch, args=(process.pid, over)) if watch else None
    if thread:
        thread.start()
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    over.set()
    if thread:
        thread.join()
    if process.returncode != 0:
        words = " ".join(command.arguments)
        raise Failed(f"{words} ended with {process.returncode}:\n{said.decode(errors='replace')[-TAIL:]}")
    return Run(round(seconds, 3), round(used.ru_utime + used.ru_stime, 3))


def tree_mib(root: int) -> float:
    """The resident memory of a process and all below it, pages they share counted for each."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    wanted = {root}
    while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
    pages = 0
    for pid in wanted:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Proxies:
    """The delay proxy in front of boxes, in a process of its own."""

    def __init__(self, python: str, repository: Path, milliseconds: float, to: Mapping[int, str]) -> None:
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.delay", str(milliseconds), *(f"{port}={host}" for port, host in to.items())],
            cwd=repository,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def end(self) -> dict[int, dict[str, Any]]:
        """Counts by port."""
        said, _ = self._process.communicate("")
        return {int(port): dict(count) for port, count in json.loads(said).items()}
