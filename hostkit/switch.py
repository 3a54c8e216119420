"""An instance's `current` link and unit: to which release they lead, and which releases stay on the box."""

from __future__ import annotations

import os
import shutil
from typing import Optional

from hostkit import files, release, systemd
from hostkit.releases import unit_name

KEEP = 3


def home_of(instance: str) -> str:
    return os.path.join(release.INSTANCES, instance)


def is_staged(instance: str, digest: Optional[str]) -> bool:
    return bool(digest) and os.path.isdir(os.path.join(home_of(instance), "releases", str(digest)))


def to(instance: str, digest: str) -> None:
    """The link and the unit. The unit is a file: where /opt is a file system of its own, a link into it leads nowhere
    at the moment when systemd reads units at boot."""
    home, target, unit = home_of(instance), os.path.join("releases", digest), unit_name(instance)
    files.link(target, os.path.join(home, "current"))
    source, installed = os.path.join(home, target, unit), os.path.join(files.UNITS, unit)
    # Not when it is right already: what goes back on a full disk must not need room.
    if os.path.islink(installed) or files.sha256(source) != files.sha256(installed):
        with open(source, "rb") as handle:
            files.write(installed, handle.read())
    # Always: a unit file that was edited and put right again is another file to systemd, too.
    systemd.take_up(unit)


def is_foreign(instance: str) -> bool:
    """Whether a unit of another making stands where ours should: what runs under the name may not be ours either."""
    unit, releases = unit_name(instance), os.path.join(home_of(instance), "releases")
    found = files.sha256(os.path.join(files.UNITS, unit))
    ours = [files.sha256(os.path.join(releases, digest, unit)) for digest in os.listdir(releases)]
    return found is not None and found not in ours


def prune(instance: str, stay: list, keep: int = KEEP) -> list:
    """Remove all but the releases that stay and the newest others, `keep` in all; returns those that are left."""
    releases = os.path.join(home_of(instance), "releases")
    names = [name for name in os.listdir(releases) if not name.startswith(".")]
    names.sort(key=lambda name: os.stat(os.path.join(releases, name)).st_mtime, reverse=True)
    left = [name for name in dict.fromkeys(stay) if name in names]
    for name in names:
        if name not in left:
            left.append(name) if len(left) < keep else throw_away(releases, name)
    return left


def throw_away(releases: str, name: str) -> None:
    """Out of sight first: what is half removed must not be taken for a release."""
    aside = os.path.join(releases, ".gone-" + name)
    shutil.rmtree(aside, ignore_errors=True)
    os.rename(os.path.join(releases, name), aside)
    shutil.rmtree(aside, ignore_errors=True)
