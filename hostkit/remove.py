"""gpufleet leaves a box, or one instance does: what `removable` shows as going goes, and the box is as it was before.

It may be cut off at any point and done again: what is needed to go on (which units were stopped for ours, which holds
are ours, what values were) goes after what it tells of, the books last but for the kit, which each call brings anew.
"""

from __future__ import annotations

import os
from typing import List, Optional

from hostkit import (
    blacklist,
    box_lock,
    events,
    files,
    holds,
    host_before,
    lock,
    release,
    remove_models,
    remove_packages,
    remove_places,
    remove_units,
    remove_user,
    retire,
    share,
    state,
)
from hostkit.roots import Roots


def run(spec: dict) -> dict:
    """Remove `instance`, or, when that is None, all of gpufleet.

    + models: what models are made of, too; never what a linked one leads to. packages: what was installed by apt, too
    + home: `host.models` of the box: models that a call before this one left there are found by it
    Returns {"started": the owner's units that serve again, "failed": what could not be put back, a line each}.
    Raises Failure when something is in the way; then it can be called again.
    """
    if spec.get("instance"):
        return instance(spec["instance"])
    return everything(bool(spec.get("models")), bool(spec.get("packages")), spec.get("home"))


def instance(name: str) -> dict:
    """One instance: its unit, releases, home, caches, and what the state says of it."""
    if name not in remove_units.instances():
        return {"started": [], "failed": []}
    events.log("removing {}".format(name))
    retire.leave(name)
    back = remove_units.give_back([name])
    folders(name)
    state.drop(name)
    state.journal("removed", instance=name, started=back["started"])
    return dict(back)


def folders(name: str) -> None:
    for path in remove_places.of_instance(name):
        remove_places.delete(path)


def everything(models: bool, packages: bool, home: Optional[str]) -> dict:
    if packages:
        remove_packages.find()  # what apt refuses to tell, it refuses before anything is stopped
    names = remove_units.instances()
    remove_units.stop_jobs()
    for name in names:
        events.log("removing {}".format(name))
        retire.leave(name)
    back = remove_units.give_back(names)
    for name in names:
        folders(name)
    remove_places.close(release.INSTANCES)
    back["failed"] += host_before.undo(Roots())
    holds.release()
    blacklist.remove()
    if packages:
        remove_packages.remove()
    for place in remove_places.places():
        remove_places.clear(place)
    remove_models.remove(models, home)
    remove_units.remove_own()
    remove_user.remove()
    for path in [*remove_places.left_by_writers(), *of_run()]:
        remove_places.delete(path)
    # Whoever takes or renews the fleet's lock meanwhile has the kit for it, or not.
    remove_places.clear(remove_places.kit())
    remove_places.close(files.ROOT)
    remove_places.clear(remove_places.books())
    for path in (lock.GUARD, box_lock.PATH):
        files.with_suppressed_unlink(path)
    return dict(back)


def of_run() -> List[str]:
    """What lies in /run, but for the locks and what this is followed by."""
    paths = (share.LOCK, share.SECRETS, os.path.dirname(share.PORT))
    return [path for path in paths if os.path.lexists(path)]
