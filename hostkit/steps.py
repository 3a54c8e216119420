"""A step of an install: a program that runs, and an error that names the step when it does not end well."""

from __future__ import annotations

import os
import subprocess
from typing import Sequence

from hostkit import events, shell, space
from hostkit.errors import Failure

SAY = "gpufleet: "  # a line of a program's output that begins so is told to the user as it comes
KEPT = 200  # lines of output kept for the error
SHOWN = 8


def run(what: str, arguments: Sequence[str], env: dict, place: str, remedy: str) -> None:
    """Run a program from `/`, where no source tree can stand in for an installed package.

    + what: the step, as the error names it
    + place: the directory it fills, to tell which file system is full
    Raises Failure with the step, the last lines, and `remedy`.
    """
    lines, status = follow(arguments, env)
    if status == 0:
        return
    if any(space.FULL in line for line in lines):
        raise space.full(place, what)
    said = "; ".join(lines[-SHOWN:]) or "it said nothing"
    ended = "was ended by signal {}".format(-status) if status < 0 else "failed"
    raise Failure("{} {}: {}".format(what, ended, said), remedy)


def follow(arguments: Sequence[str], env: dict) -> "tuple[list, int]":
    """(the last lines of both streams, exit status); lines that begin with SAY are told at once."""
    try:
        process = subprocess.Popen(
            list(arguments),
            cwd="/",
            env={**shell.ENVIRONMENT, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            close_fds=False,  # the box's lock goes along, see hostkit.lock
        )
    except OSError as error:
        return ["{} does not start: {}".format(os.path.basename(arguments[0]), error.strerror)], 127
    assert process.stdout is not None
    lines: list = []
    for raw in process.stdout:
        line = plain(raw.decode("utf-8", "replace"))
        if line.startswith(SAY):
            events.log(line[len(SAY) :])
        elif line:
            lines = (lines + [line])[-KEPT:]
    return lines, process.wait()


def plain(line: str) -> str:
    """Without the frames that uv draws around its errors."""
    return line.strip(" ×│╰├─▶\r\n")
