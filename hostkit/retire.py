"""Instances that leave a box: stopped, disabled, no longer current. Their releases stay, for a look or a way back."""

from __future__ import annotations

import os

from hostkit import events, files, release, state, systemd
from hostkit.releases import unit_name


def run(spec: dict) -> dict:
    """Take the `instances` off the box; nothing of others is touched."""
    for name in spec["instances"]:
        leave(name)
        state.journal("retired", instance=name)
    return {"retired": spec["instances"]}


def leave(name: str) -> None:
    take_off(name)
    units = sorted(state.instance(name).get("replaced") or {})
    if units:
        events.log("{}, whose place {} had, stays off: `systemctl enable --now {}` on the box brings it back, and so "
                   "does `gpufleet remove`".format(", ".join(units), name, " ".join(units)))  # fmt: skip
    state.update(name, gated=None, stale=False, activation=None, held=None)


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
