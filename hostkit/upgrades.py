"""Whether packages are upgraded without anybody looking, and which ones not: a driver that changes under a service."""

from __future__ import annotations

import os
import re

from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROGRAM = "/usr/bin/unattended-upgrade"
TIMER = "/etc/systemd/system/timers.target.wants/apt-daily-upgrade.timer"
OFF = ("", "0")


def read(roots: Roots) -> dict[str, Any]:
    """apt-config is asked, since only it knows how apt's files override each other; not called without the program."""
    if not os.path.exists(roots.path(PROGRAM)):
        return {"unattended_upgrades": {"enabled": False, "blacklist": []}}
    printed = roots.output("apt-config", "dump") or ""
    values = re.findall(r'^(\S+) "(.*)";$', printed, re.MULTILINE)
    last = dict(values)
    blacklist = [value for key, value in values if key == "Unattended-Upgrade::Package-Blacklist::" and value]
    on = last.get("APT::Periodic::Unattended-Upgrade", "") not in OFF
    on = on and last.get("APT::Periodic::Enable", "1") not in OFF
    return {"unattended_upgrades": {"enabled": on and _has_timer(roots), "blacklist": blacklist}}


def _has_timer(roots: Roots) -> bool:
    """Enabled and not masked."""
    masked = roots.link_or_none("/etc/systemd/system/apt-daily-upgrade.timer") == os.devnull
    return os.path.lexists(roots.path(TIMER)) and not masked
