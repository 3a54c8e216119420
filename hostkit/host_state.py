"""What is kept of the box's settings: the file and the unit that apply them at each boot, and what was refused."""

from __future__ import annotations

import json
import os

from hostkit import files, host_values, resolver, sha, systemd
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

UNIT = "gpufleet-host.service"
WANTS = "multi-user.target.wants"
KIT = "/opt/gpufleet/kit/gpufleet-kit.pyz"
# What a boot undoes; /etc/hosts stays as it was written.
OF_BOOT = ("persistence_mode", "power_limit", "governor", "overcommit_memory", "swappiness")
UNIT_TEXT = """# Written by gpufleet; an edit is put right by the next deploy.
[Unit]
Description=gpufleet: settings of the box itself
# Where there are modules of the driver's or its daemon, after them.
After=systemd-modules-load.service systemd-sysctl.service nvidia-persistenced.service
RequiresMountsFor=/opt/gpufleet /var/lib/gpufleet

[Service]
Type=oneshot
RemainAfterExit=yes
# A driver that hangs must not keep the box from serving on the cards that answer.
TimeoutStartSec=120
ExecStart=python3 -IS {kit} host {spec}
SyslogIdentifier=gpufleet-host

[Install]
WantedBy=multi-user.target
"""


def spec_path() -> str:
    return os.path.join(files.STATE, "host.json")


def refused_path() -> str:
    return os.path.join(files.STATE, "host-refused.json")


def unit_text() -> str:
    return UNIT_TEXT.format(kit=KIT, spec=spec_path())


def spec_text(spec: dict) -> str:
    """The part that is applied at boot, as it is kept; gpufleet/host.py makes the same."""
    return json.dumps({key: spec[key] for key in OF_BOOT if key in spec}, indent=1, sort_keys=True) + "\n"


def keep(spec: dict, refused: dict) -> None:
    """Have the spec applied at each boot, or nothing when it has nothing for that; remember what was refused."""
    if any(key in spec for key in OF_BOOT):
        put(spec_path(), spec_text(spec))
        if state(Roots()) != "current":
            put(os.path.join(files.UNITS, UNIT), unit_text())
            systemd.take_up(UNIT)
    else:
        remove()
    if "hosts_entry" not in spec:  # at boot, which does not try it
        refused = {**{key: why for key, why in read_refused(Roots()).items() if key == "hosts_entry"}, **refused}
    if refused:
        put(refused_path(), json.dumps(refused, indent=1, sort_keys=True) + "\n")
    else:
        files.with_suppressed_unlink(refused_path())


def remove() -> None:
    if os.path.lexists(os.path.join(files.UNITS, UNIT)):
        systemd.disable(UNIT)
        files.with_suppressed_unlink(os.path.join(files.UNITS, UNIT))
        systemd.reload()
    files.with_suppressed_unlink(spec_path())


def put(path: str, text: str) -> None:
    """Write a file that is not as it is to be."""
    if files.sha256(path) != sha.of(text.encode()):
        files.write(path, text.encode())


def read(roots: Roots) -> dict[str, Any]:
    """For the probe."""
    spec = roots.bytes_or_none(spec_path())
    return {
        "swappiness": host_values.sysctl(roots, "swappiness"),
        "hosts_entry": resolver.in_hosts(roots, os.uname().nodename),
        "host": {
            "settings": None if spec is None else sha.of(spec)[:16],
            "unit": state(roots),
            "refused": read_refused(roots),
        },
    }


def state(roots: Roots) -> str:
    """`current`, `changed` (edited, or not enabled), `missing`"""
    text = roots.text_or_none(os.path.join(files.UNITS, UNIT))
    if text is None:
        return "missing"
    enabled = os.path.lexists(roots.path(os.path.join(files.UNITS, WANTS, UNIT)))
    return "current" if text == unit_text() and enabled else "changed"


def read_refused(roots: Roots) -> dict[str, Any]:
    """{key: {"wanted", "why"}}; nothing when it cannot be read: then it is tried again."""
    try:
        found = json.loads(roots.text_or_none(refused_path()) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
