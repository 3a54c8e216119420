"""The units that start servers: what systemd says of them, and what of their files a service is like."""

from __future__ import annotations

import os
import re
from typing import Any, Iterator, Optional, Sequence

from hostkit import adoptable_argv
from hostkit.adoptable_secrets import Secrets
from hostkit.roots import Roots

PROPERTIES = ("Id", "ActiveState", "UnitFileState", "FragmentPath", "DropInPaths")
FOLDERS = ("/etc/systemd/system", "/usr/local/lib/systemd/system")  # where an owner puts units
TRANSIENT = "/run/systemd/transient/"
OURS = re.compile(r"gpufleet-.*")
CONTAINER = re.compile(r"(?:docker|libpod|containerd|crio)[-/:]*(?:[\w-]*[-/:])?([0-9a-f]{12})[0-9a-f]*")
# What is told of a unit: what would be otherwise as an instance, or has to be said. No `Environment`: see the process.
KEPT = frozenset(
    ["User", "Group", "WorkingDirectory", "Restart", "RestartSec", "TimeoutStartSec", "StandardOutput"]
    + ["StandardError", "EnvironmentFile", "ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost", "OnFailure"]
    + ["MemoryMax", "MemoryHigh", "CPUQuota", "CPUAffinity", "AllowedCPUs", "NUMAPolicy", "NUMAMask", "Nice"]
    + ["LimitNOFILE", "LimitMEMLOCK", "OOMScoreAdjust", "RuntimeMaxSec", "WatchdogSec"]
)
_CONTINUED = re.compile(r"[ \t]*\\\n[ \t]*")


def place(roots: Roots, pid: int) -> dict:
    """{"scope", "unit", "container"} of a process: `system`, `user`, `session` (by hand), or `container`."""
    text = roots.text_or_none("/proc/{}/cgroup".format(pid)) or ""
    trees = dict(re.findall(r"^\d+:([^:\n]*):(.*)$", text, re.MULTILINE))
    tree = trees.get("name=systemd") or trees.get("") or ""
    inside = CONTAINER.search(text)
    if inside:
        return {"scope": "container", "unit": None, "container": inside.group(1)}
    parts = [part for part in tree.split("/") if part.endswith(".service")]
    user = [at for at, part in enumerate(parts) if part.startswith("user@")]
    if user:
        below = parts[user[0] + 1 :]
        return {"scope": "user" if below else "session", "unit": below[-1] if below else None, "container": None}
    return {"scope": "system" if parts else "session", "unit": parts[-1] if parts else None, "container": None}


def show(roots: Roots, units: Sequence[str]) -> dict:
    """{unit: {property: value}} of system units, as systemd has them; nothing of one that it does not know."""
    if not units:
        return {}
    printed = roots.output("systemctl", "show", "--property=" + ",".join(PROPERTIES), "--", *units) or ""
    found = {}
    for paragraph in printed.strip().split("\n\n"):
        values = dict(line.split("=", 1) for line in paragraph.splitlines() if "=" in line)
        found[values.get("Id", "")] = values
    return found


def described(roots: Roots, unit: str, known: dict, secrets: Secrets) -> dict:
    """What is told of a system unit: its files, whether it starts at boot, and its KEPT lines."""
    fragment = known.get("FragmentPath") or None
    drop_ins = re.split(r" (?=/)", known.get("DropInPaths", "")) if known.get("DropInPaths") else []
    return {
        "fragment": fragment,
        "drop_ins": drop_ins,
        "enabled": known.get("UnitFileState") or "",
        "active": known.get("ActiveState") or "unknown",
        "transient": bool(fragment and fragment.startswith(TRANSIENT)),
        "settings": settings(roots, [fragment] + drop_ins if fragment else drop_ins, secrets),
    }


def settings(roots: Roots, files: Sequence[str], secrets: Secrets) -> dict:
    """{name: [values]} of the KEPT lines of a unit's files; an empty line takes back what was before it."""
    found: dict = {}
    for name, value in (line for path in files for line in lines(roots.text_or_none(path) or "")):
        if name in KEPT:
            said = program(value) if name.startswith("Exec") else value
            found[name] = found.get(name, []) + [secrets.text(said)] if value else []
    return {name: values for name, values in sorted(found.items()) if values}


def program(command: str) -> str:
    """What a line runs. Its words stay here: a password has many forms in them (`curl -u`, `sh -c`)."""
    first, *more = command.split() or [""]
    return first + " …" if more else first


def lines(text: str) -> Iterator[Any]:
    """(name, value) of each line of a unit file, continued ones put together."""
    for line in _CONTINUED.sub(" ", text).splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not line.lstrip().startswith(("#", ";", "[")):
            yield name.strip(), value.strip()


def user_file(roots: Roots, unit: str, home: Optional[str]) -> Optional[str]:
    """The file of a user's unit."""
    folders = ["{}/.config/systemd/user".format(home)] if home else []
    for folder in folders + ["/etc/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user"]:
        path = "{}/{}".format(folder, unit)
        if roots.text_or_none(path) is not None:
            return path
    return None


def idle(roots: Roots, running: Sequence[str]) -> list:
    """Units of the owner's that would start a server and have none running: [{"unit", "engine", "fragment"}]."""
    found = []
    for folder in FOLDERS:
        for name in roots.names(folder):
            if not name.endswith(".service") or name.endswith("@.service") or name in running or OURS.match(name):
                continue
            path = "{}/{}".format(folder, name)
            if os.path.islink(roots.path(path)):  # another name of a unit, or a mask
                continue
            starts = [value for key, value in lines(roots.text_or_none(path) or "") if key == "ExecStart"]
            engine = next(filter(None, map(adoptable_argv.in_text, starts)), None)
            if engine:
                found.append({"unit": name, "engine": engine, "fragment": path})
    return found
