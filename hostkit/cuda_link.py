"""`/usr/local/cuda` stays where it points: an install of another toolkit must not move what others build with.

NVIDIA's packages register each toolkit with update-alternatives, and in its automatic mode the newest takes the link.
So the link is put to manual before, at what it has: it never moves, not even while apt runs or the power goes.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Iterator, List

from hostkit import events, files, shell

LOCAL = "/usr/local"
ALTERNATIVES = "/etc/alternatives"
STATES = "/var/lib/dpkg/alternatives"


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """The links `cuda`, `cuda-13` and their like are after the block what they are now; new ones may come."""
    own = {}
    for name in _names():
        path, alternative = os.path.join(LOCAL, name), os.path.join(ALTERNATIVES, name)
        target = _target(path)
        if target and target != alternative:
            own[path] = target  # a link that somebody made by hand, which update-alternatives would take over
        elif target and _automatic(name):
            fixed = _target(alternative)
            if fixed and os.path.isdir(fixed):
                shell.run(["update-alternatives", "--set", name, fixed])
                events.log("{} stays at {} (update-alternatives --auto {} undoes that)".format(path, fixed, name))
    try:
        yield
    finally:
        for path, target in own.items():
            files.link(target, path)


def _names() -> List[str]:
    try:
        return sorted(name for name in os.listdir(LOCAL) if re.match(r"cuda(-\d+)?$", name))
    except OSError:
        return []


def _automatic(name: str) -> bool:
    try:
        with open(os.path.join(STATES, name), encoding="utf-8") as handle:
            return handle.readline().strip() == "auto"
    except OSError:
        return False


def _target(path: str) -> str:
    return os.readlink(path) if os.path.islink(path) else ""
