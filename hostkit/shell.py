"""Running other programs: no shell, both streams kept, the last lines for the error."""

from __future__ import annotations

import os
import subprocess

from hostkit.errors import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence

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
    timeout: Optional[float] = None,
) -> str:
    """Run a program and return its output (both streams).

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
            close_fds=False,  # the box's lock goes along, see hostkit.box_lock
        )
    except FileNotFoundError:
        raise Failure(
            "{} is not installed".format(arguments[0]),
            "install the package that has {}, then deploy again".format(os.path.basename(arguments[0])),
        )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Failure(
            "{} did not end within {:.0f} s".format(os.path.basename(arguments[0]), timeout or 0),
            "look at what it waits for on the box, then deploy again",
        )
    text = "\n".join(output.decode("utf-8", "replace").splitlines())
    if process.returncode != 0:
        raise Ended(arguments, process.returncode, text)
    return text
