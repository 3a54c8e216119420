"""Which wheels a Python on a box can install, and which of several is the best."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

OLDER = {17: "manylinux2014_x86_64", 12: "manylinux2010_x86_64", 5: "manylinux1_x86_64"}


def ranked(python: str, glibc: int) -> dict[Tag, int]:
    """The tags of CPython `python` (`3.11`) on x86_64 with glibc 2.`glibc`, the best with the lowest number."""
    major, minor = (int(part) for part in python.split("."))
    platforms: list[str] = []
    for version in range(glibc, 4, -1):
        platforms.append(f"manylinux_2_{version}_x86_64")
        platforms += [OLDER[version]] if version in OLDER else []
    platforms.append("linux_x86_64")
    own = f"cp{major}{minor}"
    found = [
        *cpython_tags((major, minor), abis=[own], platforms=platforms),
        *compatible_tags((major, minor), own, platforms),
    ]
    return {tag: number for number, tag in enumerate(found)}


def best(filenames: Iterable[str], known: dict[Tag, int]) -> str | None:
    """The best of these wheels of one release, None when none can be installed; of equals the highest build."""
    ranked = []
    for name in filenames:
        _, _, build, its = parse_wheel_filename(name)
        fits = [known[tag] for tag in its if tag in known]
        if fits:
            ranked.append((-min(fits), build, name))
    return max(ranked)[2] if ranked else None


def marker_environment(python: str) -> dict[str, str]:
    """What markers of requirements are evaluated in."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
