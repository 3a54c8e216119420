"""BOX or BOX/INSTANCE of a command: which box, and which of its instances. A wrong name gets the nearest right one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet.errors import ConfigError, nearest
from gpufleet.fleet import Fleet
from gpufleet.traits import is_trait

PREFIX = 4  # letters of a digest that are enough, when no other begins with them


@dataclass(frozen=True)
class Target:
    """A box, and the instance that was named, if one was."""

    box: str
    instance: str | None = None


def parse(fleet: Fleet, word: str) -> Target:
    """Raises ConfigError when the fleet has no such box, or the word is neither BOX nor BOX/INSTANCE."""
    box, slash, instance = word.partition("/")
    _known(fleet, box, "name it, or BOX/INSTANCE")
    if slash and (not instance or "/" in instance):
        raise ConfigError([f"{word!r} names no instance; write {box}, or {box}/INSTANCE"])
    return Target(box, instance or None)


def one_box(fleet: Fleet, word: str) -> str:
    """The box of a command that is about a whole one. Raises ConfigError when the fleet has no such box."""
    box = word.partition("/")[0]
    _known(fleet, box, "name it")
    if box != word:
        raise ConfigError([f"{word!r}: this is done on a whole box; write {box}"])
    return box


def _known(fleet: Fleet, box: str, how: str) -> None:
    if box not in fleet.boxes:
        if fleet.by_hand().get(box) or is_trait(box):
            raise ConfigError([f"{box!r} is a group; this is done on one box: {how}"])
        raise ConfigError([f"there is no box {box!r} in the inventory{nearest(box, fleet.boxes)}"])


def instances_of(facts: Mapping[str, Any], target: Target) -> list[str]:
    """The instances that are meant: the one that was named, or all that the box serves.

    Raises ConfigError when the box has no such instance, or none at all.
    """
    found = facts.get("instances") or {}
    if target.instance is not None:
        if target.instance not in found:
            near = nearest(target.instance, found) or "; it has none"
            raise ConfigError([f"{target.box} has no instance {target.instance!r}{near}"])
        return [target.instance]
    served = [name for name, item in found.items() if item.get("current") or item.get("activation")]
    if not served:
        raise ConfigError([f"{target.box} serves nothing: deploy it first"])
    return served


def release_of(facts: Mapping[str, Any], target: Target, names: list[str], wanted: str) -> tuple[str, str]:
    """(instance, digest) that --to means: a digest or its beginning. Raises ConfigError when it means not just one."""
    found = facts.get("instances") or {}
    kept = [(name, digest) for name in names for digest in found[name].get("releases") or []]
    meant = [(name, digest) for name, digest in kept if digest == wanted]
    meant = meant or [(name, digest) for name, digest in kept if len(wanted) >= PREFIX and digest.startswith(wanted)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ConfigError([f"--to {wanted!r} means {_listed(meant)} of {target.box}: give more of it, or the instance"])
    there = _listed(kept) if kept else "none"
    raise ConfigError([f"--to {wanted!r} is no release that {target.box} keeps; it has: {there}"])


def _listed(pairs: list[tuple[str, str]]) -> str:
    return ", ".join(f"{digest} ({name})" for name, digest in pairs)
