"""Who listens on which TCP port, and of which unit that process is."""

from __future__ import annotations

import os
import re

from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

_LISTEN = "0A"
_CUT = 15


def read(roots: Roots) -> dict[str, Any]:
    sockets = dict(_listening(roots))
    owners = _owners(roots, set(sockets))
    ports: dict[str, Any] = {}
    for inode, port in sockets.items():
        pid = owners.get(inode)
        if ports.get(port, {}).get("pid") is None:
            ports[port] = {"pid": pid, "command": command_of(roots, pid), "unit": unit_of(roots, pid)}
    return {"ports": {port: ports[port] for port in sorted(ports, key=int)}}


def given_by_chance(roots: Roots) -> range:
    """The ports that the kernel gives to who asks for none: another start of a program has others of them."""
    low, high = (roots.text_or_none("/proc/sys/net/ipv4/ip_local_port_range") or "32768 60999").split()
    return range(int(low), int(high) + 1)


def _listening(roots: Roots) -> Iterator[tuple[str, str]]:
    """(inode of the socket, port)."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (roots.text_or_none(table) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN:
                yield fields[9], str(int(fields[1].rsplit(":", 1)[1], 16))


def _owners(roots: Roots, inodes: set[str]) -> dict[str, int]:
    """{inode: pid}; a socket inherited by workers belongs to the first of them, which is their parent."""
    owners: dict[str, int] = {}
    for pid in sorted(int(name) for name in roots.names("/proc") if name.isdigit()):
        if len(owners) == len(inodes):
            break
        directory = roots.path(f"/proc/{pid}/fd")
        try:
            descriptors = os.listdir(directory)
        except OSError:  # ended meanwhile, or not ours to see
            continue
        for descriptor in descriptors:
            try:
                target = os.readlink(os.path.join(directory, descriptor))
            except OSError:
                continue
            if target.startswith("socket:[") and target[8:-1] in inodes:
                owners.setdefault(target[8:-1], pid)
    return owners


def command_of(roots: Roots, pid: int | None) -> str | None:
    """The kernel's name of the process: of a script its own, not the interpreter's; but cut at 15 characters."""
    if pid is None:
        return None
    short = (roots.text_or_none(f"/proc/{pid}/comm") or "").strip()
    words = (roots.text_or_none(f"/proc/{pid}/cmdline") or "").split("\0")
    if len(short) < _CUT:  # whole; the words may be a title the process gave itself
        return short or os.path.basename(words[0]) or None
    full = [name for name in map(os.path.basename, words[:2]) if name.startswith(short)]
    return full[0] if full else short


def unit_of(roots: Roots, pid: int | None) -> str | None:
    """The innermost unit, from the tree systemd keeps: named in cgroup v1 and hybrid, the only one in v2."""
    if pid is None:
        return None
    trees = dict(re.findall(r"^\d+:([^:\n]*):(.*)$", roots.text_or_none(f"/proc/{pid}/cgroup") or "", re.MULTILINE))
    for tree in ("name=systemd", ""):
        parts: list[str] = [part for part in trees.get(tree, "").split("/") if part.endswith((".service", ".scope"))]
        if parts:
            return parts[-1]
    return None
