"""Who has the place of a unit of the owner's: the instances of one `serve` entry have it together.

The first of them stops it, the others find it off. What it was is kept with each, so that whichever goes last gives it
back; until then it stays off, for the others serve what it did.
"""

from __future__ import annotations

from typing import Iterable, Optional

from hostkit import state


def is_kept(units: dict) -> bool:
    return any(kept["active"] or kept["enabled"] for kept in units.values())


def together(older: "Optional[dict]", newer: "Optional[dict]") -> dict:
    """Both records: a unit that was disabled for an instance is to be enabled again when it is given back, whatever
    a later activation found it to be. What neither ran nor was enabled leaves nothing to give back."""
    found = {}
    for unit in {**(older or {}), **(newer or {})}:
        one, two = ((each or {}).get(unit) or {} for each in (older, newer))
        active, enabled = (bool(one.get(key) or two.get(key)) for key in ("active", "enabled"))
        if active or enabled:
            ports = one.get("ports") or two.get("ports") or []
            path = one.get("path") or two.get("path")
            found[unit] = {"enabled": enabled, "active": active, "ports": ports, "path": path}
    return found


def recorded(name: str) -> dict:
    """Of an instance by its name, also of an activation that was cut off."""
    return of(state.instance(name))


def of(known: dict) -> dict:
    return together(known.get("replaced"), (known.get("activation") or {}).get("replaced"))


def by_others(name: str, units: "Iterable[str]") -> dict:
    """What these units were, as far as other instances have that written down, those that were retired included."""
    found: dict = {}
    wanted = set(units)
    for other, known in state.load()["instances"].items():
        if other != name:
            found = together(found, {unit: kept for unit, kept in of(known).items() if unit in wanted})
    return found


def still_by(unit: str, name: str) -> list:
    """The other instances that have the place of a unit, and serve or are to: not those that were retired."""
    return sorted(
        other
        for other, known in state.load()["instances"].items()
        if other != name and (known.get("gated") or known.get("activation")) and unit in of(known)
    )


def alone(name: str, only: "Optional[Iterable[str]]" = None) -> dict:
    """What is to be given back when an instance goes: {unit: what it was} of those that no other has the place of.

    + only: of these units
    """
    wanted = None if only is None else set(only)
    had = {unit: kept for unit, kept in recorded(name).items() if wanted is None or unit in wanted}
    return {unit: kept for unit, kept in had.items() if not still_by(unit, name)}


def hand_on(name: str, only: "Optional[Iterable[str]]" = None) -> dict:
    """Leave to others what they have the place of, too. Returns {unit: names of those}. + only: of these units"""
    wanted = None if only is None else set(only)
    left = {}
    for unit, kept in recorded(name).items():
        others = still_by(unit, name) if wanted is None or unit in wanted else []
        for other in others:
            had = state.instance(other).get("replaced") or {}
            both = together({unit: had.get(unit)}, {unit: kept})
            if both != {unit: had.get(unit)}:
                state.update(other, replaced={**had, **both})
        if others:
            left[unit] = others
            drop(name, [unit])
    return left


def settled(units: "Iterable[str]") -> None:
    """These were given back: no instance does that again, nor one that was retired before."""
    back = list(units)
    for name in state.load()["instances"]:
        drop(name, back)


def drop(name: str, units: "Iterable[str]") -> None:
    had, gone = state.instance(name).get("replaced") or {}, set(units)
    rest = {unit: kept for unit, kept in had.items() if unit not in gone}
    if rest != had:
        state.update(name, replaced=rest or None)
