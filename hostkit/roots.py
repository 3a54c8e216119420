"""Where a box's file system starts, so that a test can hand the probe a box made of a few files."""

from __future__ import annotations

import os
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Mapping, Optional

# what an ordinary user's PATH lacks on Debian: modinfo lives there
_SBIN = ":/usr/sbin:/sbin"


class Roots:
    """Every path the probe reads goes through here; absolute paths in, paths below the base out.

    + programs: what the programs of a made-up box print, by name; those of this machine would tell of another box
    + kernel_log: a file that is read in place of the kernel's log
    """

    def __init__(
        self, base: str = "/", programs: Optional[Mapping[str, str]] = None, kernel_log: Optional[str] = None
    ) -> None:
        self.base = base
        self.programs = programs if programs is not None or base == "/" else {}
        self.kernel_log = kernel_log

    @property
    def real(self) -> bool:
        """Whether this is the machine it runs on, which system calls tell of as well."""
        return self.base == "/" and self.programs is None

    def path(self, absolute: str) -> str:
        return os.path.join(self.base, absolute.lstrip("/"))

    def text(self, absolute: str) -> str:
        with open(self.path(absolute), encoding="utf-8", errors="replace") as file:
            return file.read()

    def text_or_none(self, absolute: str) -> str | None:
        """For what a box may lack or refuse, such as a process that has just ended."""
        try:
            return self.text(absolute)
        except OSError:
            return None

    def bytes_or_none(self, absolute: str) -> bytes | None:
        try:
            with open(self.path(absolute), "rb") as file:
                return file.read()
        except OSError:
            return None

    def names(self, absolute: str) -> list[str]:
        """The sorted entries of a directory; none when there is no such directory."""
        try:
            return sorted(os.listdir(self.path(absolute)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def link_or_none(self, absolute: str) -> str | None:
        """The target of a link as it is written."""
        try:
            return os.readlink(self.path(absolute))
        except OSError:
            return None

    def output(self, *arguments: str) -> str | None:
        """What a program prints on its standard output, in the C locale; None when it is not installed.

        Raises OSError with what it said, when its status is not 0.
        """
        lines = self.lines(*arguments)
        return None if lines is None else "\n".join(lines)

    def lines(self, *arguments: str) -> Iterator[str] | None:
        """The same line by line, for a program that may print more than there is memory."""
        if self.programs is not None:
            printed = self.programs.get(arguments[0])
            return None if printed is None else iter(printed.splitlines())
        # a program that prints in the user's language cannot be read
        environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C", "TZ": "UTC"}
        environment["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + _SBIN
        try:
            process = subprocess.Popen(
                arguments,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except (FileNotFoundError, PermissionError):  # the latter when PATH names a folder that is closed to the caller
            return None
        return _read(process, arguments[0])


def _read(process: subprocess.Popen[bytes], name: str) -> Iterator[str]:
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        yield line.decode("utf-8", "replace").rstrip("\n")
    # read last: what these programs say of an error fits the pipe
    said = process.stderr.read().decode("utf-8", "replace").strip()
    if process.wait() != 0:
        raise OSError(f"{name}: {said or 'it ended with status %d' % process.returncode}")
