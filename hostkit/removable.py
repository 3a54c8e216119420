"""What of gpufleet is on a box, with sizes: what goes when it is removed, and what stays. Looks only; see `remove`."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from hostkit import (
    blacklist,
    files,
    garbage,
    holds,
    host_before,
    host_state,
    remove_models,
    remove_packages,
    remove_places,
    remove_units,
    remove_user,
    state,
    systemd,
    taken,
)
from hostkit.releases import unit_name
from hostkit.remove_places import Place
from hostkit.roots import Roots

BOOKS = "state and journal; a copy of the journal is kept on the controller"
MANY = 5  # things of others in one folder that are named each
Item = Dict[str, Any]
Found = Dict[str, List[Any]]


def run(spec: dict) -> dict:
    """{"goes": [{kind, name, bytes, why}], "stays": [the same], "back": units of the owner's that are started again,
    "instances": names there are}.

    + instance: only this one; None: everything
    + models: what models are made of goes, too; packages: what was installed by apt
    + home: `host.models` of the box, where the controller knows of one
    Where nothing is left of gpufleet but its kit, both lists are empty.
    """
    names = remove_units.instances()
    wanted = [name for name in names if spec.get("instance") in (None, name)]
    found: Found = {"goes": [of_instance(name) for name in wanted], "stays": []}
    units = [item for name in wanted for item in taken.recorded(name).items()]
    if spec.get("instance"):
        others = {unit: ", ".join(taken.still_by(unit, spec["instance"])) for unit, _ in units}
        units = [(unit, was) for unit, was in units if not others[unit]]
        kept = [(unit, "off: {} has its place, too".format(having)) for unit, having in others.items() if having]
        found["stays"] += [item("unit", unit, 0, why) for unit, why in kept]
    else:
        of_the_box(found, spec)
    back = sorted({unit for unit, was in units if was["active"]})
    return {**found, "back": back, "instances": names}


def of_instance(name: str) -> Item:
    known = state.instance(name)
    why = "serves on port {}".format(known.get("port")) if is_running(name) else "does not serve"
    paths = remove_places.of_instance(name)
    return item("instance", name, sum(garbage.size(path) for path in paths), why)


def is_running(name: str) -> bool:
    return bool(systemd.show(unit_name(name))["active"] in ("active", "activating", "reloading"))


def of_the_box(found: Found, spec: dict) -> None:
    """Add what is not of one instance to the lists."""
    goes, stays = found["goes"], found["stays"]
    for place in remove_places.places():
        on_disk(place, found)
    models(found, bool(spec.get("models")), spec.get("home"))
    roots = Roots()
    for change in host_before.changes(roots):
        was = "" if change.value is None else "back to {}".format(change.was)
        goes.append(item("setting", change.what, 0, was))
    if os.path.exists(host_state.spec_path()) and not host_before.read(roots):
        stays.append(item("setting", "the host settings", 0, "until the next boot: what they were is not known"))
    packages(found, bool(spec.get("packages")))
    if blacklist.state(roots) != "missing":
        goes.append(item("file", blacklist.PATH, 0, "unattended-upgrades may upgrade driver and kernel again"))
    goes += [item("unit", name, 0, "") for name in remove_units.of_the_box()]
    goes += [item("file", path, 0, "of a write that was cut off") for path in remove_places.left_by_writers()]
    stays += [item("file", path, 0, "yours: changes a unit that is gone") for path in remove_units.drop_ins()]
    if remove_user.find():
        goes.append(item("user", files.USER, 0, ""))
    elif remove_user.exists():
        stays.append(item("user", files.USER, 0, "it is another than gpufleet makes"))
    on_disk(remove_places.books(), found)
    on_disk(remove_places.kit(), {"goes": [], "stays": stays})  # the kit itself, which each look brings, is not told
    stays += of_others([path for path in remove_places.entries(files.ROOT) if path not in known_folders()])


def on_disk(place: Place, found: Found) -> None:
    """What is ours of a place by its name and size, and what is not."""
    seen: set = set()
    ours = remove_places.ours(place)
    if place.kind == "runtime":
        found["goes"] += [item("runtime", os.path.basename(path), garbage.size(path, seen), "") for path in ours]
    elif ours:
        size = sum(garbage.size(path, seen) for path in ours)
        why = BOOKS if place.kind == "books" else "{} entries".format(len(ours))
        found["goes"].append(item(place.kind, place.folder, size, why))
    others = [path for path in remove_places.entries(place.folder) if path not in ours]
    found["stays"] += of_others(others)


def of_others(paths: List[str]) -> List[Item]:
    """What is not ours, without its size: it may be a whole disk."""
    folders: Dict[str, List[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), []).append(path)
    found = []
    for folder, inside in folders.items():
        names = inside if len(inside) <= MANY else ["{} things in {}".format(len(inside), folder)]
        found += [item("other", name, 0, "not gpufleet's") for name in names]
    return found


def models(found: Found, going: bool, home: Optional[str]) -> None:
    there = remove_models.find(home)
    for path in there.links:
        found["goes"].append(item("link", path, 0, "to {}, which stays".format(os.readlink(path))))
    if there.made:
        names = ", ".join(remove_models.models(there)) or "files of models"
        why = "" if going else "go with --models"
        found["goes" if going else "stays"].append(item("model", names, remove_models.size(there), why))
    found["stays"] += of_others(there.others)


def packages(found: Found, going: bool) -> None:
    held = holds.read(Roots())["held"]
    if held:
        found["goes"].append(item("holds", "{} packages".format(len(held)), 0, "may be upgraded again"))
    ours, sources = holds.all_installed(), remove_packages.sources()
    if not going:
        if ours or sources:
            what = "{} packages, {}".format(len(ours), ", ".join(sources) or "no apt source")
            found["stays"].append(item("packages", what, 0, "go with --packages"))
        return
    free, needed = remove_packages.find()
    if free:
        found["goes"].append(item("packages", " ".join(free), 0, "as `apt-get -s purge` has it"))
    if needed:
        found["stays"].append(item("packages", " ".join(needed), 0, "other packages need them"))
    found["goes"] += [item("file", path, 0, "") for path in sources]


def known_folders() -> List[str]:
    names = ("kit", "runtimes", "store", "builds", "models", "instances", "cache")
    return [os.path.join(files.ROOT, name) for name in names]


def item(kind: str, name: str, size: int, why: str) -> Item:
    return {"kind": kind, "name": name, "bytes": size, "why": why}
