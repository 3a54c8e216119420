"""Whether an ssh config has something to say of where a box is; what that is, pyinfra reads itself when it connects."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

_KEYWORD = re.compile(r"^\s*(\w+)(?:\s*=\s*|\s+)(.+?)\s*$")
# What leads to a machine; a block of others (`Host *` with a user) names none.
_LEADS = {"hostname", "proxycommand", "proxyjump"}


def leads(name: str, config: Path) -> bool:
    """Whether a `Host` names the box as it is, or by a pattern with an address or a way to it.

    Files that cannot be read have nothing to say; a `Match` may mean any box, and is left to the connection.
    """
    matches = False
    for key, value in _lines(config, frozenset()):
        if key == "match":
            return True
        if key == "host":
            patterns = _words(value)
            if name in patterns:
                return True
            matches = _named(name, patterns)
        elif matches and key in _LEADS:
            return True
    return False


def _named(name: str, patterns: list[str]) -> bool:
    """As ssh_config(5) has it: a `!pattern` that fits outweighs all others."""
    if any(fnmatchcase(name, pattern[1:]) for pattern in patterns if pattern.startswith("!")):
        return False
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _lines(config: Path, above: frozenset[Path]) -> Iterator[tuple[str, str]]:
    """(keyword in lower case, value) of a file and of those it includes."""
    try:
        text = config.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        found = _KEYWORD.match(line)
        if not found or line.lstrip().startswith("#"):
            continue
        key, value = found.group(1).lower(), found.group(2)
        if key != "include":
            yield key, value
            continue
        for word in _words(value):
            pattern = config.parent / Path(word).expanduser()
            for path in sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))):
                if path not in above | {config}:
                    yield from _lines(path, above | {config})


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value, comments=True)
    except ValueError:  # a quote without its end
        return value.split()
