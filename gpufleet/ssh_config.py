"""Whether an ssh config has something to say of where a box is; what that is, pyinfra reads itself when it connects."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

USERS = "~/.ssh/config"
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


def expanded(path: str) -> str:
    """`~` as the home that it means; as it is where there is none."""
    try:
        return str(Path(path).expanduser())
    except RuntimeError:
        return path


def problem(config: Path) -> str:
    """Why a config, or a file that it includes, cannot be used: the file, the cause, what to do; empty when all can.

    One that is not there has nothing to say, as pyinfra has it.
    """
    return next(_problems(config, [config]), "")


def _problems(config: Path, read: list[Path]) -> Iterator[str]:
    """As pyinfra reads them, which wants UTF-8, and no file twice. + read: those that were read so far, with this"""
    try:
        text = config.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        yield f"{config}: line {number} is not UTF-8; write it anew in UTF-8 (iconv), or take that line out"
        return
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield f"{config} cannot be read: {error.strerror}; let your user read it (chmod, chown), or take it away"
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _KEYWORD.match(line)
        if not found:
            yield f"{config}: line {number} cannot be read: {line.strip()!r}; mend or remove it"
        elif found.group(1).lower() == "include":
            for path in _included(config, found.group(2)):
                if path in read:
                    yield f"{config}: line {number} includes {path}, which was read already; take one of the lines out"
                elif not path.is_dir():
                    read.append(path)
                    yield from _problems(path, read)


def _included(config: Path, value: str) -> Iterator[Path]:
    for word in _words(value):
        pattern = config.parent / expanded(word)
        yield from sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))


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
        for path in _included(config, value):
            if path not in above | {config}:
                yield from _lines(path, above | {config})


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value, comments=True)
    except ValueError:  # a quote without its end
        return value.split()
