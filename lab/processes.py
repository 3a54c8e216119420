"""Processes and mounts of this machine as /proc tells them: what the lab finds its own by, also after a crash."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    arguments: tuple[str, ...]


def read(pid: int) -> Process | None:
    """The process, or None when there is none (a zombie is none: it holds nothing any more)."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
        line = (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]  # a command's name may hold spaces and brackets
    if state in "ZX":
        return None
    arguments = tuple(part.decode(errors="replace") for part in line.split(b"\0")[:-1])
    return Process(pid, int(parent), arguments)


def every() -> Iterator[Process]:
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (process := read(int(entry.name))) is not None:
            yield process


def init_of(nspawn: int) -> int | None:
    """PID 1 of the box of a systemd-nspawn process."""
    return first_init(process.pid for process in every() if process.parent == nspawn)


def first_init(pids: Iterable[int]) -> int | None:
    """The process that is number 1 in a namespace right below ours (not further down, as in a container of a box)."""
    for pid in pids:
        try:
            status = (PROC / str(pid) / "status").read_text()
        except OSError:
            continue
        numbers = re.search(r"^NSpid:\s+\d+\s+(\d+)$", status, re.MULTILINE)
        if numbers and numbers[1] == "1":
            return pid
    return None


def in_cgroup(group: str) -> list[int]:
    """The processes in a control group or below it; asked of each process, since groups vanish while one looks."""
    found = []
    for process in every():
        try:
            text = (PROC / str(process.pid) / "cgroup").read_text()
        except OSError:
            continue
        if any(f"{group}/" in f"{line}/" for line in text.splitlines()):
            found.append(process.pid)
    return found


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_gone(pids: Iterable[int], seconds: float) -> list[int]:
    """Wait until they have ended; returns those that have not."""
    left = list(pids)
    until = time.monotonic() + seconds
    while left := [pid for pid in left if read(pid) is not None]:
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    return left


def kill(pids: Iterable[int]) -> list[int]:
    pids = list(pids)
    send(pids, signal.SIGKILL)
    return wait_gone(pids, 10)


def mounts_under(directory: Path, mountinfo: str | None = None) -> list[Path]:
    """Mount points below a directory, the innermost first, in the order in which they can be unmounted."""
    text = (PROC / "self" / "mountinfo").read_text() if mountinfo is None else mountinfo
    points = []
    for line in text.splitlines():
        # the kernel writes space, tab, newline and backslash as octal
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4]))
        if point != directory and point.is_relative_to(directory):
            points.append(point)
    return sorted(points, key=lambda point: len(point.parts), reverse=True)
