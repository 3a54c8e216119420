"""Whether the box knows its own name: vLLM, NCCL and gloo look it up, and wait for a resolver that never answers."""

from __future__ import annotations

import os

from hostkit.guard import Tell
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def read(roots: Roots, tell: Tell) -> dict[str, Any]:
    name = os.uname().nodename
    if in_hosts(roots, name):
        return {"hostname_resolves": True}
    if not roots.real:
        return {"hostname_resolves": False}
    tell.known({"hostname_resolves": False})
    tell.doing(f"looking up {name}")
    import socket

    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return {"hostname_resolves": False}
    return {"hostname_resolves": True}


def in_hosts(roots: Roots, name: str) -> bool:
    """Whether a line of /etc/hosts has this name."""
    lines = (line.split("#")[0].split() for line in (roots.text_or_none("/etc/hosts") or "").splitlines())
    return any(name in words[1:] for words in lines)
