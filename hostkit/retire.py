"""Instances that leave a box: stopped, disabled, no longer current. Their releases stay, for a look or a way back."""

from __future__ import annotations

import os

from hostkit import events, files, release, state, systemd, taken
from hostkit.releases import unit_name


def run(spec: dict) -> dict:
    """Take the `instances` off the box; nothing of others is touched."""
    for name in spec["instances"]:
        leave(name)
        state.journal("retired", instance=name)
        units = sorted(taken.alone(name))
        if units:
            said = "{}, whose place {} had, stays off: `systemctl enable --now {}` on the box brings it back"
            events.log(said.format(", ".join(units), name, " ".join(units)))
    return {"retired": spec["instances"]}


def leave(name: str) -> None:
    """Off the box. What units of the owner's were before stays in the books, also of an activation that was cut off."""
    take_off(name)
    units = taken.recorded(name)
    more = {"replaced": units} if units else {}
    state.update(name, gated=None, stale=False, activation=None, held=None, **more)


def take_off(name: str) -> None:
    unit = unit_name(name)
    systemd.stop(unit)
    systemd.disable(unit)
    home = os.path.join(release.INSTANCES, name)
    files.with_suppressed_unlink(os.path.join(files.UNITS, unit))
    files.with_suppressed_unlink(os.path.join(home, "current"))
    for directory in (files.UNITS, home):
        if os.path.isdir(directory):
            files.sync_directory(directory)
    systemd.reload()
    systemd.forget(unit)
