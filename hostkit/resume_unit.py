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
# Not oneshot: a start that takes as long as two gates keeps the boot waiting, and systemd holds on to the unit of the
# job whose failure it was started for, which then cannot be started again under its name.
Type=exec
ExecStart={python} {kit} resume
StandardInput=null
# It fails by being killed; then it goes on, and after the second time it puts back. Not without its kit: 2 is Python's
# word for a file that is not there, and nothing limits the starts.
Restart=on-failure
RestartPreventExitStatus=2
RestartSec=2
KillMode=control-group
OOMScoreAdjust=-500

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
        systemd.take_up(NAME)
    elif not os.path.islink(wanted):
        systemd.enable(NAME)


def read(path: str) -> "bytes | None":
    try:
        with open(path, "rb") as handle:
            return handle.read()
    except OSError:
        return None
