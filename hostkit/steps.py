"""A step of an install: a program that runs, and an error that names the step when it does not end well."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Sequence

from hostkit import events, shell, space
from hostkit.errors import Failure

SAY = "gpufleet: "  # a line of a program's output that begins so is told to the user as it comes
KEPT = 200  # lines of output kept for the error
SHOWN = 8
LONGEST = 500  # characters of a line: a program may print megabytes without an end of line, or what is no text
BLOCK = 1 << 20  # bytes read as one line at most
# A compiler that was ended, mostly for want of memory: nvcc says the first of its own child, gcc the second, a shell
# the third.
KILLED = re.compile(r"signal 9|Killed signal|\bKilled$")


def run(what: str, arguments: Sequence[str], env: dict, place: str, remedy: str, everywhere: bool = False) -> None:
    """Run a program from `/`, where no source tree can stand in for an installed package.

    + what: the step, as the error names it
    + place: the directory it fills, to tell which file system is full
    + everywhere: that the program says no is the same on every like box. A full disk is of this box alone, and so may
      be that something was ended
    Raises Failure with the step, the last lines, and `remedy`.
    """
    lines, status = follow(arguments, env)
    if status == 0:
        return
    if any(space.FULL in line for line in lines):
        raise space.full(place, what)
    said = "; ".join(lines[-SHOWN:]) or "it said nothing"
    ended = "was ended by signal {}".format(-status) if status < 0 else "failed"
    own = status < 0 or any(KILLED.search(line) for line in lines)
    raise Failure("{} {}: {}".format(what, ended, said), remedy, everywhere and not own)


def follow(arguments: Sequence[str], env: dict, answer: str = "") -> "tuple[list, int]":
    """(the last lines of both streams, exit status); lines that begin with SAY are told at once.

    + answer: what a line begins with that is kept whole, not only LONGEST characters of it
    """
    try:
        process = subprocess.Popen(
            list(arguments),
            cwd="/",
            env={**shell.ENVIRONMENT, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            close_fds=False,  # the box's lock goes along, see hostkit.box_lock
        )
    except OSError as error:
        return ["{} does not start: {}".format(os.path.basename(arguments[0]), error.strerror)], 127
    assert process.stdout is not None
    lines: list = []
    for raw in iter(lambda: process.stdout.readline(BLOCK), b""):  # type: ignore[union-attr]
        line = plain(raw.decode("utf-8", "replace"))
        if not (answer and line.startswith(answer)):
            line = shortened(line)
        if line.startswith(SAY):
            events.log(line[len(SAY) :])
        elif line:
            lines = (lines + [line])[-KEPT:]
    return lines, process.wait()


def plain(line: str) -> str:
    """Without the frames that uv draws around its errors."""
    return line.strip(" ×│╰├─▶\r\n")


def shortened(line: str) -> str:
    return line if len(line) <= LONGEST else line[:LONGEST] + "…"
