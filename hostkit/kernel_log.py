"""Xid events since boot: what NVIDIA's driver writes into the kernel's log when a card or a program on it failed.

Codes: https://docs.nvidia.com/deploy/xid-errors/
"""

from __future__ import annotations

import os
import re

from hostkit.guard import Tell
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

LAST_CHARACTERS = 200
# the journal first: the kernel's own buffer loses its oldest lines
COMMANDS = (("journalctl", "-k", "-b", "-o", "cat", "--no-pager", "-q"), ("dmesg",))
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:]+)[^)]*\): (\d+)")


def read(roots: Roots, tell: Tell) -> dict[str, Any]:
    """{"xid", "kernel_log", "errors"}: in a container there is no log to read, which is no error."""
    said = ""
    for name, *arguments in [("file",)] if roots.kernel_log else COMMANDS:
        tell.doing(name)
        try:
            lines = _file(roots.kernel_log) if roots.kernel_log else roots.lines(name, *arguments) or iter(())
            read_any, events = _events(lines)
        except OSError as error:
            said = str(error)
            continue
        if read_any:
            return {"xid": events, "kernel_log": True}
    errors = [] if os.geteuid() == 0 or not roots.real else [f"only root may read the kernel's log: {said}"]
    return {"xid": [], "kernel_log": False, "errors": errors}


def _file(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        yield from file


def _events(lines: Iterator[str]) -> tuple[bool, list[dict[str, Any]]]:
    """(whether there was any line, the events by card and code); a storm of one event stays one item."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    read_any = False
    for line in lines:
        read_any = True
        xid = _XID.search(line) if "NVRM: Xid" in line else None
        if xid:
            bus_id, code = xid.group(1), int(xid.group(2))
            event = found.setdefault((bus_id, code), {"code": code, "bus_id": bus_id, "count": 0, "last": ""})
            event["count"] += 1
            event["last"] = line[xid.start() :].rstrip()[:LAST_CHARACTERS]
    return read_any, [found[key] for key in sorted(found)]
