"""Running other programs: no shell, output followed live where it is worth it, the last lines kept for the error."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from typing import Callable, Optional, Sequence

from hostkit.errors import Failure

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "HOME": "/root",
}


class Ended(Exception):
    """A program ended with another status than 0; `tail` is the end of its `output`."""

    def __init__(self, arguments: Sequence[str], status: int, output: str) -> None:
        self.status = status
        self.output = output
        self.tail = "\n".join(output.splitlines()[-12:])
        super().__init__("{} ended with status {}: {}".format(arguments[0], status, self.tail))


def run(
    arguments: Sequence[str],
    env: Optional[dict] = None,
    follow: Optional[Callable[[str], None]] = None,
    timeout: Optional[float] = None,
) -> str:
    """Run a program and return its output (both streams).

    + follow: called with each line as it comes
    + timeout: seconds after which the program is killed
    Raises Ended when its status is not 0, Failure when it cannot be started or takes too long.
    """
    try:
        process = subprocess.Popen(
            list(arguments),
            env={**ENVIRONMENT, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            close_fds=False,  # the box's lock goes along, see hostkit.lock
        )
    except FileNotFoundError:
        raise Failure(
            "{} is not installed".format(arguments[0]),
            "install the package that has {}, then deploy again".format(os.path.basename(arguments[0])),
        )
    lines: deque = deque(maxlen=2000)
    try:
        if follow is None:
            output, _ = process.communicate(timeout=timeout)
            lines.extend(output.decode("utf-8", "replace").splitlines())
        else:
            assert process.stdout is not None
            for raw in process.stdout:
                line = raw.decode("utf-8", "replace").rstrip()
                lines.append(line)
                follow(line)
            process.wait(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Failure(
            "{} did not end within {:.0f} s".format(os.path.basename(arguments[0]), timeout or 0),
            "look at what it waits for on the box, then deploy again",
        )
    text = "\n".join(lines)
    if process.returncode != 0:
        raise Ended(arguments, process.returncode, text)
    return text
