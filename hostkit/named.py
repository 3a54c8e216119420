"""What the releases on a box name: the runtimes and models that are in use, or would be after a way back."""

from __future__ import annotations

import json
import os
import re
from typing import NamedTuple

from hostkit import files, release, state
from hostkit.errors import Failure
from hostkit.releases import current_release, unit_name
from hostkit.roots import Roots

_PATH = re.compile(r"/opt/gpufleet/(runtimes|models)/([A-Za-z0-9._+-]+(?:/[A-Za-z0-9._+-]+)?)")


class Named(NamedTuple):
    """+ releases: {instance: digests that are kept}; {} for one that was retired
    + runtimes: names; models: `name/revision`
    + caches: `instance/runtime` whose compile caches are of use
    """

    releases: dict
    runtimes: set
    models: set
    caches: set


def read() -> Named:
    """Of each instance its current release, the last two that passed their gate, and the newest where there is no such.

    Raises Failure when a release cannot be read: then nobody can tell what is in use.
    """
    found = Named({}, set(), set(), set())
    for instance in instances():
        kept = kept_releases(instance)
        found.releases[instance] = kept
        for digest in kept:
            runtime, model = names_of(instance, digest)
            found.runtimes.add(runtime)
            found.models.add(model)
            found.caches.add("{}/{}".format(instance, runtime))
    return found


def instances() -> list:
    try:
        names = sorted(os.listdir(release.INSTANCES))
    except FileNotFoundError:
        return []
    return [name for name in names if os.path.isdir(os.path.join(release.INSTANCES, name))]


def releases_of(instance: str) -> list:
    """Its releases, newest first; one that is being staged has another name."""
    folder = os.path.join(release.INSTANCES, instance, "releases")
    try:
        names = [name for name in os.listdir(folder) if re.fullmatch("[0-9a-f]{16}", name)]
    except FileNotFoundError:
        return []
    return sorted(names, key=lambda name: os.stat(os.path.join(folder, name)).st_mtime, reverse=True)


def kept_releases(instance: str) -> list:
    there = releases_of(instance)
    current = current_release(Roots(), os.path.join(release.INSTANCES, instance))
    passed = state.passed(state.instance(instance))
    kept = [digest for digest in (current, *passed[:1]) if digest in there]
    if not kept and not os.path.lexists(os.path.join(files.UNITS, unit_name(instance))):
        return []  # retired: neither a link, nor a unit, nor a release that ever passed its gate and was not given up
    # What a rollback would go to is what comes first.
    others = [digest for digest in passed + there if digest in there and digest not in kept]
    return list(dict.fromkeys(kept + others[:1]))


def names_of(instance: str, digest: str) -> "tuple[str, str]":
    """(runtime, `name/revision` of the model) of a release, by the links that its manifest names.

    A release of before there were links has the one in its manifest, and both by path in its unit.
    """
    folder = os.path.join(release.INSTANCES, instance, "releases", digest)
    try:
        manifest = release.manifest(folder)
        if "links" in manifest:
            paths = dict(pair for link in manifest["links"].values() for pair in _PATH.findall(link))
            return str(paths["runtimes"]), str(paths["models"])
        runtime = str(manifest["runtime"])
        with open(os.path.join(folder, unit_name(instance)), encoding="utf-8") as handle:
            paths = dict(_PATH.findall(handle.read()))
        return runtime, str(paths["models"])
    except (OSError, ValueError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise Failure(
            "release {} of {} cannot be read ({!r}), so nobody can tell what is in use".format(digest, instance, error),
            "deploy this box: that puts releases right; or delete {}".format(folder),
        )
