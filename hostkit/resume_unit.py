"""The unit that finishes what was cut off: gpufleet-resume.service, and the link by which units find the kit."""

from __future__ import annotations

import os
import sys

from hostkit import files, systemd

NAME = "gpufleet-resume.service"
KIT = os.path.join(files.ROOT, "kit", "gpufleet-kit.pyz")
TEXT = """\
# Written by gpufleet; an edit is put right by the next deploy.
[Unit]
Description=gpufleet: finish or put back an activation that was cut off
Wants=network-online.target
After=network-online.target gpufleet-host.service
RequiresMountsFor={root} {state}
ConditionPathExists={state}/state.json
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart={python} {kit} resume
StandardInput=null
# As long as two gates may take: of the release that is tried again, and of the one that is put back.
TimeoutStartSec=infinity
KillMode=control-group

[Install]
WantedBy=multi-user.target
"""


def install() -> None:
    """Put the unit in place where it differs; a link to a kit that is gone leads to this one."""
    ours = os.path.abspath(sys.argv[0])
    if not os.path.isfile(KIT) and os.path.dirname(ours) == os.path.dirname(KIT):
        files.link(os.path.basename(ours), KIT)
    path = os.path.join(files.UNITS, NAME)
    wanted = os.path.join(files.UNITS, systemd.WANTS, NAME)
    data = TEXT.format(root=files.ROOT, state=files.STATE, python=sys.executable, kit=KIT).encode()
    if read(path) != data:
        files.write(path, data)
        systemd.reload()
        systemd.enable(NAME)
    elif not os.path.islink(wanted):
        systemd.enable(NAME)


def read(path: str) -> "bytes | None":
    try:
        with open(path, "rb") as handle:
            return handle.read()
    except OSError:
        return None
