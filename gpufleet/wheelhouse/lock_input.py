"""What a lock is made from: an `.in` file.

It has requirements as pip writes them, and directives:

    # gpufleet: platform x86_64-manylinux_2_35     the oldest glibc it is for, as uv names it
    # gpufleet: exclude-newer 2026-08-20           nothing published later gets in; so the same lock can be made again
    # gpufleet: repacked vllm                      resolved with, but not locked: the page has it under `wheels`
    # gpufleet: unread 1cat-vllm                   under `wheels`, but what it needs cannot be read: it stands here
    # gpufleet: drop torchaudio                    not installed, whoever asks for it
    # gpufleet: override numpy==2.3.5              this, whatever the packages themselves ask for
    # gpufleet: constrain setuptools<81            this, if anything asks for it
    # gpufleet: newer lmcache 2026-10-20           of this package also what was published until that day
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpufleet.errors import ConfigError, nearest

DIRECTIVES = ("platform", "exclude-newer", "repacked", "unread", "drop", "override", "constrain", "newer")
ONE_OF = ("platform", "exclude-newer")
PLATFORM = re.compile(r"x86_64-manylinux_2_([0-9]{1,2})$")
NEWER = re.compile(r"[A-Za-z0-9._-]+ (\S+)$")


@dataclass(frozen=True)
class Input:
    """An `.in` file. + glibc: the minor version of the oldest glibc 2.x it is for"""

    glibc: int
    exclude_newer: str
    requirements: tuple[Requirement, ...]
    repacked: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    drop: frozenset[str] = frozenset()
    override: tuple[str, ...] = ()
    constrain: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()

    @property
    def platform(self) -> str:
        """As uv names it."""
        return f"x86_64-manylinux_2_{self.glibc}"


def parse(text: str, where: str) -> Input:
    """Read an `.in` file. Raises ConfigError with each line that is wrong."""
    found: dict[str, list[str]] = {key: [] for key in DIRECTIVES}
    requirements: list[Requirement] = []
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            if line.startswith("# gpufleet:"):
                key, _, value = line.removeprefix("# gpufleet:").strip().partition(" ")
                if key not in found:
                    raise ValueError(f"unknown directive {key!r}{nearest(key, DIRECTIVES)}")
                if key in ("override", "constrain"):
                    Requirement(value)
                if key == "newer" and not ((newer := NEWER.match(value)) and _is_day(newer[1])):
                    raise ValueError(f"{value!r} is no package and day, such as `lmcache 2026-10-20`")
                found[key].append(value.strip())
            elif line.strip() and not line.startswith("#"):
                requirements.append(Requirement(line.partition(" #")[0].strip()))
        except (ValueError, InvalidRequirement) as error:
            problems.append(f"{where}: line {number}: {error}")
    problems += [
        f"{where}: needs one line `# gpufleet: {key} …`, and has {len(found[key])}"
        for key in ONE_OF
        if len(found[key]) != 1
    ]
    glibc = PLATFORM.match("".join(found["platform"]))
    if not problems and not glibc:
        problems.append(f"{where}: platform {found['platform'][0]!r} is none such as x86_64-manylinux_2_35")
    if not problems and not _is_day(found["exclude-newer"][0]):
        problems.append(f"{where}: exclude-newer {found['exclude-newer'][0]!r} is no day such as 2026-08-20")
    if problems or glibc is None:
        raise ConfigError(problems)
    return Input(
        int(glibc[1]),
        found["exclude-newer"][0],
        tuple(requirements),
        _names(found["repacked"]),
        _names(found["unread"]),
        _names(found["drop"]),
        tuple(found["override"]),
        tuple(found["constrain"]),
        tuple(found["newer"]),
    )


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _names(words: list[str]) -> frozenset[str]:
    return frozenset(canonicalize_name(word) for word in words)
