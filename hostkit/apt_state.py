"""Whether apt could be called now, by its files alone: locks, what dpkg left half done, the addresses it would ask."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
from typing import Any, Iterator

from hostkit.packages import STATUS
from hostkit.roots import Roots

LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")
UPDATES = "/var/lib/dpkg/updates"
# struct flock of a 64-bit Linux: type, whence, (padding), start, length, pid
_FLOCK = "hhxxxxqqixxxx"
# What dpkg calls a package that it did not get to the end of; `triggers-…` it finishes by itself.
_BROKEN = ("half-installed", "half-configured", "unpacked")
_URI = re.compile(r"^'([^']+)'")


def read(roots: Roots) -> dict:
    """{"locks": [{"path", "pid", "command"}], "broken": [names], "interrupted": bool, "addresses": [urls], "proxies":
    {scheme: url}, "said": what apt says of its own sources, or None}. Nothing is changed, no lock is taken.
    """
    found: dict = {"addresses": [], "said": None, "proxies": {}}
    try:
        found["addresses"] = addresses(roots)
        found["proxies"] = proxies(roots)
    except OSError as error:
        found["said"] = str(error)
    return {
        **found,
        "locks": list(locks(roots)),
        "broken": broken(roots),
        "interrupted": any(re.fullmatch("[0-9]+", name) for name in roots.names(UPDATES)),
    }


def locks(roots: Roots) -> Iterator[dict]:
    """Locks that somebody holds now."""
    for path in LOCKS:
        pid = holder(roots.path(path))
        if pid is not None:
            name = (roots.text_or_none("/proc/{}/comm".format(pid)) or "").strip() if pid else ""
            yield {"path": path, "pid": pid or None, "command": name or None}


def holder(path: str) -> Any:
    """Who holds the lock of a file (0: somebody in another container); None: nobody, or there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOLCK):  # a file system without locks
            return None
        raise
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else pid


def broken(roots: Roots) -> list:
    """Packages that dpkg did not get to the end of, or that it says have to be installed again."""
    names = []
    for paragraph in (roots.text_or_none(STATUS) or "").split("\n\n"):
        state = re.search(r"^Status: \S+ (\S+) (\S+)$", paragraph, re.MULTILINE)
        if state and (state.group(1) == "reinstreq" or state.group(2) in _BROKEN):
            names.append(paragraph[len("Package: ") :].split("\n", 1)[0])
    return sorted(names)


def addresses(roots: Roots) -> list:
    """What `apt-get update` would ask for. Raises OSError with what apt says when it cannot read its sources."""
    printed = roots.output("apt-get", "--print-uris", "update") or ""
    found = [_URI.match(line) for line in printed.splitlines()]
    return list(dict.fromkeys(uri.group(1) for uri in found if uri))


def proxies(roots: Roots) -> dict:
    """{"http": url} of apt's own configuration."""
    printed = roots.output("apt-config", "dump", "Acquire::http::Proxy", "Acquire::https::Proxy") or ""
    lines = re.findall(r'^Acquire::(https?)::Proxy "([^"]+)";$', printed, re.MULTILINE)
    return {scheme: url for scheme, url in lines if url not in ("DIRECT", "false")}
