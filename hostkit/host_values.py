"""Settings of the box as values that are read, and written when they differ: kernel, processor, /etc/hosts."""

from __future__ import annotations

import errno
import os

from hostkit import files, hardware, resolver
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

SYSCTLS = ("overcommit_memory", "swappiness")
HOSTS = "/etc/hosts"
LINE = "127.0.1.1\t{}\n"
READ_ONLY = "/proc/sys is read-only here, as in a container: set it on the machine that the container runs on"


class Refused(Exception):
    """A value cannot be had on this box; the message says why."""


class Value:
    """+ key: of the setting, with a card's UUID where there is one for each card: `power_limit.GPU-…`
    + what: how people call it: `vm.swappiness`
    + write: raises Refused or OSError
    """

    def __init__(self, key: str, what: str, wanted: Any, read: Callable[[], Any], write: Callable[[], None]) -> None:
        self.key, self.what, self.wanted, self.read, self.write = key, what, wanted, read, write


def settle(value: Value, note: "Optional[Callable[[Any], None]]" = None) -> "tuple[Any, Optional[str]]":
    """(what it was, None when it is as wanted now, else why not); written only when it differs, and read back.

    + note: takes what it is, before it is written
    """
    found = None
    try:
        found = value.read()
        if found == value.wanted:
            return found, None
        if note and found is not None:
            note(found)
        value.write()
        now = value.read()
    except Refused as refused:
        return found, str(refused)
    except OSError as error:
        return found, READ_ONLY if error.errno == errno.EROFS and value.key in SYSCTLS else str(error)
    return found, None if now == value.wanted else "it is {} after {} was written".format(now, value.wanted)


def of_kernel(roots: Roots, name: str, wanted: int) -> Value:
    path = "/proc/sys/vm/" + name
    return Value(
        name,
        "vm." + name,
        wanted,
        lambda: sysctl(roots, name),
        lambda: write_in_place(roots, path, str(wanted)),
    )


def sysctl(roots: Roots, name: str) -> Optional[int]:
    text = (roots.text_or_none("/proc/sys/vm/" + name) or "").strip()
    return int(text) if text.isdigit() else None


def of_processor(roots: Roots, wanted: str) -> Value:
    def write() -> None:
        paths = hardware.governor_files(roots)
        if not paths:
            raise Refused("the kernel scales no frequency here, as in most virtual machines: set it on their host")
        for path in paths:
            known = (roots.text_or_none(os.path.dirname(path) + "/scaling_available_governors") or "").split()
            if known and wanted not in known:
                raise Refused("this processor's driver has only {}".format(", ".join(known)))
            write_in_place(roots, path, wanted)

    return Value("governor", "the CPU governor", wanted, lambda: hardware.governor(roots), write)


def of_hosts(roots: Roots, name: str) -> Value:
    return Value(
        "hosts_entry",
        "{} in {}".format(name, HOSTS),
        True,
        lambda: resolver.in_hosts(roots, name),
        lambda: add_to_hosts(roots, name),
    )


def add_to_hosts(roots: Roots, name: str) -> None:
    """A line of its own at the end, as Debian's installer writes it; nothing else of the file is touched."""
    path = os.path.realpath(roots.path(HOSTS))
    text = roots.text_or_none(HOSTS)
    mode = os.stat(path).st_mode & 0o7777 if text is not None else 0o644
    text = "127.0.0.1\tlocalhost\n" if text is None else text
    if text and not text.endswith("\n"):
        text += "\n"
    write_hosts(path, text + LINE.format(name), mode)


def drop_from_hosts(roots: Roots, line: str) -> None:
    """Take the line that `add_to_hosts` wrote away again. Raises Refused, OSError."""
    path = os.path.realpath(roots.path(HOSTS))
    text = (roots.bytes_or_none(HOSTS) or b"").decode("utf-8", "surrogateescape")
    lines = text.splitlines(keepends=True)
    kept = [each for each in lines if each.rstrip("\n") != line]
    if kept != lines:
        write_hosts(path, "".join(kept), os.stat(path).st_mode & 0o7777)


def write_hosts(path: str, text: str, mode: int) -> None:
    try:
        files.write(path, text.encode("utf-8", "surrogateescape"), mode)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise Refused("{} is mounted into this container: add the name where that is made".format(HOSTS))
        raise


def write_in_place(roots: Roots, path: str, text: str) -> None:
    """Files of the kernel: each write is a command, and there is nothing to rename."""
    with open(roots.path(path), "w", encoding="ascii") as handle:
        handle.write(text + "\n")
