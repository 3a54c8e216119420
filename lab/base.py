"""The base image of every box, and the .deb files a box may want later: one mmdebstrap run, so that versions agree.

The image is bare on purpose (no compiler, no python3-venv, no libnuma): installing those is what a deploy has to prove.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from lab import cache
from lab.paths import Settings
from lab.shell import run

SUITE = "bookworm"
PYTHON = "3.11"  # bookworm's own; what the wheelhouse fetches for
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "sudo", "iproute2", "ca-certificates", "procps",
)  # fmt: skip
LATER = ("g++", "python3-dev", "python3-venv", "libnuma1", "libgomp1", "ninja-build")
SUDO_PASSWORD = "lab-secret"  # noqa: S105 - of opspw, on boxes that only this machine reaches

SSHD = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100:30:200
UseDNS no
"""
# From inside, so that the address is there again after a reboot of the box.
ADDRESS_UNIT = """\
[Unit]
Description=Address of the lab
Before=network.target ssh.service

[Service]
Type=oneshot
RemainAfterExit=yes
EnvironmentFile=/etc/lab-address
ExecStart=ip address replace ${ADDRESS} dev host0
ExecStart=ip link set host0 up

[Install]
WantedBy=multi-user.target
"""
FILES = {
    "/etc/ssh/sshd_config.d/lab.conf": SSHD,
    "/etc/systemd/system/lab-address.service": ADDRESS_UNIT,
    "/etc/sudoers.d/ops": "ops ALL=(ALL:ALL) NOPASSWD: ALL\n",
}
COMMANDS = (
    "useradd --create-home --shell /bin/bash ops",
    "useradd --create-home --shell /bin/bash --groups sudo opspw",
    f"printf 'opspw:{SUDO_PASSWORD}\\n' | chpasswd",
    "systemctl enable lab-address.service",
    # an image has no identity and no source of packages: every box gets its own when it is made
    "rm -f /etc/ssh/ssh_host_* /etc/apt/sources.list /etc/apt/sources.list.d/*",
    ": > /etc/machine-id; rm -f /var/lib/dbus/machine-id",
)


def image(settings: Settings) -> Path:
    """The directory with root/ (the image) and debs/ (what boxes may install)."""
    recipe = {"suite": SUITE, "packages": PACKAGES, "later": LATER, "files": FILES, "commands": COMMANDS}
    return cache.once(settings.cache, "base", recipe, _build)


def _build(directory: Path) -> None:
    debs = directory / "debs"
    debs.mkdir()
    hooks = [
        f'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get --yes --download-only install {shlex.join(LATER)}',
        f'cp "$1"/var/cache/apt/archives/*.deb {shlex.quote(str(debs))}',
        *(f'printf %s {shlex.quote(text)} > "$1"{path}' for path, text in FILES.items()),
        *(f'chroot "$1" sh -ec {shlex.quote(command)}' for command in COMMANDS),
    ]
    run([
        "mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}",
        *(f"--customize-hook={hook}" for hook in hooks),
        SUITE, directory / "root",
    ])  # fmt: skip
