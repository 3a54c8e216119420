"""Scripts of /etc/init.d, of which systemd-sysv-generator makes units at each boot and reload.

Such a unit's file is `generated`, never enabled; what starts it are links in /etc/rc2.d and the like, of which the
generator makes that a target wants it. `systemctl enable` and `disable` hand it on to update-rc.d, which renames these
links: S01llm where it starts, K01llm where it does not. That fails for a script whose header names no runlevels, which
somebody linked by hand; it is enabled all the same.
"""

from __future__ import annotations

import os
from typing import Mapping

from hostkit import files

SCRIPTS = "/etc/init.d/"
LINKS = "/etc/rc{}.d"
LEVELS = "S0123456"


def is_one(properties: "Mapping[str, str]") -> bool:
    """+ properties: of `systemctl show`, with UnitFileState and SourcePath"""
    made = properties.get("UnitFileState") == "generated"
    return made and (properties.get("SourcePath") or "").startswith(SCRIPTS)


def file_state(properties: "Mapping[str, str]") -> str:
    """`enabled`, `disabled` or another state of a unit's file. + properties: with WantedBy besides"""
    if not is_one(properties):
        return properties.get("UnitFileState") or ""
    wanted = (properties.get("WantedBy") or "").split()
    return "enabled" if any(name.endswith(".target") for name in wanted) else "disabled"


def sync() -> None:
    """Make what starts at boot survive a power cut: update-rc.d only renames links."""
    for level in LEVELS:
        folder = LINKS.format(level)
        if os.path.isdir(folder):
            files.sync_directory(folder)
