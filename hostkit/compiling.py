"""Runs a build's program: its output into a log, its progress told, and a failure said with what it means."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from typing import IO, Sequence

from hostkit import events, shell, space, steps
from hostkit.errors import Failure
from hostkit.ninja import Progress
from hostkit.steps import KILLED

KEPT = 400  # lines of output kept for the error
SHOWN = 4
WRONG = re.compile(r"\b(error|fatal|failed)\b *:", re.IGNORECASE)
UNREACHED = re.compile(r"Could not resolve host|unable to access '|Failed to connect to|Failed to clone repository")


def run(what: str, arguments: Sequence[str], env: dict, place: str, log: str) -> None:
    """Run the program in `place`, telling how far it is.

    + what: the distribution that is built
    + log: the file its whole output goes into
    Raises Failure with the lines that say why, what to do, and where the log is.
    """
    with open(log, "wb", buffering=0) as handle:  # who follows it sees it as it comes
        lines, status = follow(what, arguments, env, place, handle)
    if status == 0:
        return
    if any(space.FULL in line for line in lines):
        raise space.full(place, what)
    ended = "was ended by signal {}".format(-status) if status < 0 else "failed"
    # What was ended, for want of memory, and what was not reached are of this box alone.
    own = status < 0 or any(KILLED.search(line) or UNREACHED.search(line) for line in lines)
    cause = "building {} {}: {}".format(what, ended, "; ".join(reason(lines)))
    raise Failure(cause, remedy(lines, env, log), everywhere=not own)


def follow(what: str, arguments: Sequence[str], env: dict, place: str, log: IO[bytes]) -> "tuple[list, int]":
    """(the last lines of both streams, exit status)."""
    process = subprocess.Popen(
        list(arguments),
        cwd=place,
        env={**shell.ENVIRONMENT, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        close_fds=False,  # the box's lock goes along, see hostkit.box_lock
    )
    assert process.stdout is not None
    descriptor, rest = process.stdout.fileno(), b""
    lines: list = []
    progress = Progress(time.monotonic())
    while True:
        if select.select([descriptor], [], [], 1.0)[0]:
            block = os.read(descriptor, 65536)
            if not block:
                break
            log.write(block)
            *whole, rest = (rest + block).split(b"\n")
            rest = rest[-steps.BLOCK :]  # of what has no end of line
            for raw in whole:
                text = steps.shortened(raw.decode("utf-8", "replace").rstrip())
                progress.line(text, time.monotonic())
                lines = (lines + [text])[-KEPT:] if text else lines
        told = progress.due(time.monotonic())
        if told:
            events.log("{}: {}".format(what, told))
    return lines + ([steps.shortened(rest.decode("utf-8", "replace"))] if rest else []), process.wait()


def reason(lines: list) -> list:
    """The lines that say why; the last ones when none does."""
    found = [line.strip() for line in lines if WRONG.search(line) or KILLED.search(line)]
    return found[:SHOWN] or [line.strip() for line in lines[-SHOWN:]] or ["it said nothing"]


def remedy(lines: list, env: dict, log: str) -> str:
    where = "its whole output is in {} on the box".format(log)
    if any(KILLED.search(line) for line in lines):
        what = "memory did not suffice for {} compilers: set a smaller MAX_JOBS in `build.env` of the stack's page"
        return "{}; {}".format(what.format(env.get("MAX_JOBS", "so many")), where)
    if any(UNREACHED.search(line) for line in lines):
        what = "the box does not reach what the build fetches (`build.fetches`): give it a route, or set mirrors.git"
        return "{}; {}".format(what, where)
    return "read the message; {}".format(where)
