"""What packages ask for: requirements of a wheel's metadata that apply on a box, and whether a lock has them all."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from email.parser import HeaderParser

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from gpufleet.wheelhouse.tags import marker_environment


def requirements(metadata: str) -> list[Requirement]:
    """All Requires-Dist of a METADATA file. Raises InvalidRequirement."""
    return [Requirement(line) for line in HeaderParser().parsestr(metadata).get_all("Requires-Dist") or []]


def applying(found: Iterable[Requirement], python: str, extras: Collection[str] = ()) -> list[Requirement]:
    """Those that apply on CPython `python`, linux x86_64, with these extras asked for; without their markers."""
    environment = marker_environment(python)
    kept: list[Requirement] = []
    for one in found:
        if one.marker is None or any(one.marker.evaluate({**environment, "extra": extra}) for extra in ["", *extras]):
            plain = Requirement(str(one).partition(";")[0].strip())
            if str(plain) not in map(str, kept):
                kept.append(plain)
    return kept


def reached(
    roots: Collection[Requirement], needs: Mapping[str, Collection[Requirement]], python: str
) -> dict[str, list[Requirement]]:
    """What is asked for from `roots` on: each package's requirements that apply, with the extras it is asked for with.

    + needs: all Requires-Dist by package; packages that are not in it are left out
    """
    extras: dict[str, set[str]] = {}
    left = deque(applying(roots, python))
    found: dict[str, list[Requirement]] = {}
    while left:
        one = left.popleft()
        name = canonicalize_name(one.name)
        if name not in needs or (name in found and one.extras <= extras[name]):
            continue
        extras.setdefault(name, set()).update(one.extras)
        found[name] = applying(needs[name], python, sorted(extras[name]))
        left.extend(found[name])
    return found


def unmet(asked: Iterable[tuple[str, Requirement]], versions: Mapping[str, str]) -> Iterator[str]:
    """A line for each requirement that the locked versions do not meet. + asked: who asks, and for what"""
    for who, one in asked:
        version = versions.get(canonicalize_name(one.name))
        if version is None:
            yield f"{who} needs {one}, which is not locked"
        elif one.specifier and not one.specifier.contains(Version(version), prereleases=True):
            yield f"{who} needs {one}, and {version} is locked"
