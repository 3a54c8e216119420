"""The state of the instances' services: one call of systemctl for all of them, none when there are none."""

from __future__ import annotations

import os
import re
import subprocess

from hostkit import scripts
from hostkit.releases import unit_name
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

PROPERTIES = [
    "Id",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "MainPID",
    "NRestarts",
    "ActiveEnterTimestamp",
    "InactiveEnterTimestamp",
    "InactiveExitTimestamp",
    "LoadState",
    "FragmentPath",
    "DropInPaths",
    "NeedDaemonReload",
    "WantedBy",
    "RequiredBy",
    "TriggeredBy",
    "SourcePath",
]
UNKNOWN = {
    "active": "unknown", "sub": "unknown", "enabled": False, "pid": None, "restarts": 0, "since": None,
    "masked": False, "fragment": None, "drop_ins": [], "unread": False,
}  # fmt: skip
EDITED = ("/etc/systemd/system", "/run/systemd/system")
OURS = "/gpufleet-"  # how the folder of a drop-in begins that is for our units; service.d is for all of the system
# which moment `systemctl status` calls "since"
_SINCE = {
    "inactive": "InactiveEnterTimestamp",
    "failed": "InactiveEnterTimestamp",
    "activating": "InactiveExitTimestamp",
}


def systemctl_show(units: list[str]) -> str:
    # C and UTC: the stamps are printed in the caller's language and time zone
    environment = dict(os.environ, LC_ALL="C", TZ="UTC")
    command = ["systemctl", "show", "--property=" + ",".join(PROPERTIES), "--"] + units
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode != 0:
        raise OSError("systemctl show: " + done.stderr.decode(errors="replace").strip())
    return done.stdout.decode(errors="replace")


def read(
    instances: list[str],
    show: Callable[[list[str]], str] = systemctl_show,
    roots: Roots | None = None,
    units: Sequence[str] = (),
) -> dict[str, Any]:
    """{"services": by instance, "units": by name}; `units` are others, of which less is told."""
    asked = [unit_name(name) for name in instances] + list(units)
    if not asked:
        return {"services": {}, "units": {}}
    paragraphs = show(asked).strip().split("\n\n")
    answers = [dict(line.split("=", 1) for line in each.splitlines() if "=" in line) for each in paragraphs]
    by_id = {found.get("Id", ""): found for found in answers}
    services = {
        name: _with_new_drop_ins(_service(found), unit_name(name), roots or Roots())
        if (found := by_id.get(unit_name(name)))
        else UNKNOWN
        for name in instances
    }
    # In the order they were asked for: a name of a unit may be another than its Id.
    others = answers[len(instances) :] if len(answers) == len(asked) else []
    return {"services": services, "units": {name: _unit(found) for name, found in zip(units, others)}}  # noqa: B905


def _unit(properties: dict[str, str]) -> dict[str, Any]:
    """One of somebody else's.

    + id: its own name, where it was asked for by another; + there: the system's manager knows it
    + state: of its file: `enabled`, `disabled`, `static` …; see hostkit.scripts
    + wanted_by: what starts it, the target of one that is enabled included
    """
    starters = (properties.get(key, "") for key in ("WantedBy", "RequiredBy", "TriggeredBy"))
    return {
        "id": properties.get("Id", ""),
        "there": properties.get("LoadState") not in (None, "", "not-found"),
        "active": properties.get("ActiveState", "unknown"),
        "state": scripts.file_state(properties),
        "wanted_by": sorted({name for found in starters for name in found.split()}),
    }


def _service(properties: dict[str, str]) -> dict[str, Any]:
    active = properties.get("ActiveState", "unknown")
    return {
        "active": active,
        "sub": properties.get("SubState", "unknown"),
        "enabled": properties.get("UnitFileState", "").startswith("enabled"),
        "pid": int(properties.get("MainPID", "0")) or None,
        "restarts": int(properties.get("NRestarts", "0") or 0),
        "since": _moment(properties.get(_SINCE.get(active, "ActiveEnterTimestamp"), "")),
        **_loaded(properties),
    }


def _loaded(properties: dict[str, str]) -> dict[str, Any]:
    """What systemd runs in place of our unit, or beside it.

    + masked: it starts nothing, whoever asks; + fragment: the unit file that it goes by
    + drop_ins: files of others that change this unit; + unread: a file changed, and systemd goes by what it was before
    """
    paths = re.split(r" (?=/)", properties.get("DropInPaths", ""))
    return {
        "masked": properties.get("LoadState") == "masked",
        "fragment": properties.get("FragmentPath") or None,
        "drop_ins": sorted(path for path in paths if OURS in os.path.dirname(path)),
        "unread": properties.get("NeedDaemonReload") == "yes",
    }


def _with_new_drop_ins(service: dict[str, Any], unit: str, roots: Roots) -> dict[str, Any]:
    """With those that lie there since systemd last looked: of a folder that is new to it, it does not say so itself."""
    folders = [f"{place}/{name}.d" for place in EDITED for name in (unit, "gpufleet-.service")]
    there = {f"{folder}/{name}" for folder in folders for name in roots.names(folder) if name.endswith(".conf")}
    new = there - {*service["drop_ins"]}
    return {**service, "drop_ins": sorted(there | {*service["drop_ins"]}), "unread": service["unread"] or bool(new)}


def _moment(stamp: str) -> str | None:
    """ "Sat 2026-11-29 17:40:00 UTC" as 2026-11-29T17:40:00Z."""
    found = re.search(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)", stamp)
    return "{}T{}Z".format(*found.groups()) if found else None
