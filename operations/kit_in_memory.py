"""Verbs of the kit on a box on which nothing is put: the kit comes on standard input and stays in memory.

Linux keeps the file (memfd_create(2)) for as long as the process runs, and Python imports from it by its name below
/proc. What remains there is what any login leaves: lines in the logs of sshd and sudo, sudo's notes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from pyinfra.api.host import Host

from gpufleet.errors import BoxError
from operations import become
from operations.kit_scripts import NO_PYTHON, PYTHON
from operations.remote import LOOK_SECONDS, _result, kit
from operations.remote_shell import run

# 3.8 is the first that has memfd_create
LEAST = (3, 8)
VERSION = "import sys; print('GPUFLEET:PYTHON:%d.%d' % sys.version_info[:2])"
BOOT = """\
import os, sys
left, verb = int(sys.argv[1]), sys.argv[2]
kit = os.memfd_create("gpufleet-kit")
while left:
    block = sys.stdin.buffer.read(min(left, 1 << 16))
    if not block:
        sys.exit("the kit did not come whole")
    left -= len(block)
    os.write(kit, block)
sys.path.insert(0, "/proc/self/fd/%d" % kit)
sys.argv = ["gpufleet-kit", verb]
from hostkit.__main__ import main
sys.exit(main())
"""


def script() -> str:
    """How the login becomes root, and which Python there is: `GPUFLEET:AS:sudo -n` and `GPUFLEET:PYTHON:3.11`."""
    return f"""
if [ "$(id -u)" = 0 ]; then echo GPUFLEET:AS:; else
  if ! command -v sudo >/dev/null; then echo GPUFLEET:NOSUDO
  elif E=$(LC_ALL=C sudo -n true 2>&1); then echo "GPUFLEET:AS:sudo -n"
  else echo "GPUFLEET:SUDO:$E"; fi
fi
{NO_PYTHON}
{PYTHON} -c {shlex.quote(VERSION)}
"""


def answers(host: Host) -> list[str]:
    """What `script` printed there, without what a login shell's start-up files print. Raises BoxError."""
    found = []
    for line in run(host, script(), [], None, LOOK_SECONDS):
        if line.startswith("GPUFLEET:"):
            found.append(line.removeprefix("GPUFLEET:"))
        elif found:
            found[-1] += f" {line}"
    return found


def call(host: Host, verb: str, spec: Mapping[str, Any], seconds: float = LOOK_SECONDS) -> dict[str, Any]:
    """The result of a verb. Raises BoxError."""
    data = kit().data
    command = f"exec {PYTHON} -c {shlex.quote(BOOT)} {len(data)} {shlex.quote(verb)}"
    stdin = [data, json.dumps(spec).encode() + b"\n"]
    try:
        return _result(host, run(host, command, stdin, become.by_box.get(host.name), seconds), lambda _: None)
    except BoxError as error:
        raise BoxError(error.box, error.cause, error.remedy.replace("deploy again", "try again")) from error


def as_root(host: Host) -> None:
    """Try the password that sudo is given. Raises BoxError when it is not taken."""
    for _ in run(host, "true", [], become.by_box[host.name], LOOK_SECONDS):
        pass
