"""What the controller itself needs for the lab, installed by apt, and only when it is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lab.errors import LabError
from lab.shell import run

COMMANDS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "gpg": "gnupg",
    "gpgconf": "gnupg",
    "dpkg-deb": "dpkg",
    "gcc": "gcc",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
}
FILES = {
    "/usr/include/stdlib.h": "libc6-dev",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
    "/etc/ssl/certs/ca-certificates.crt": "ca-certificates",
}
INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_WANTED = 8192
INOTIFY_ENOUGH_FOR = 20  # boxes; beyond that the usual limit of 128 makes a systemd fail to start


def require_root() -> None:
    if os.geteuid() != 0:
        raise LabError(
            "the lab needs root: it mounts file systems, boots boxes and makes a network bridge",
            'Run it as root, for example: sudo "$(command -v python)" -m lab …',
        )


def missing() -> list[str]:
    commands = {package for command, package in COMMANDS.items() if shutil.which(command) is None}
    files = {package for file, package in FILES.items() if not Path(file).exists()}
    return sorted(commands | files)


def ensure() -> None:
    packages = missing()
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise LabError(f"missing on this machine: {', '.join(packages)}", "The lab needs a Debian or Ubuntu machine.")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "-q", "update"], env=environment)
    run(["apt-get", "-q", "-y", "install", "--no-install-recommends", *packages], env=environment)
    if still := missing():
        raise LabError(f"still missing after the installation: {', '.join(still)}", "Install them by hand.")


def allow_boxes(count: int) -> None:
    if count > INOTIFY_ENOUGH_FOR and int(INOTIFY_INSTANCES.read_text()) < INOTIFY_WANTED:
        INOTIFY_INSTANCES.write_text(str(INOTIFY_WANTED))
