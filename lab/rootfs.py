"""A box's disk: an overlay on the base image, which costs nothing until the box writes, and what makes it this box."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from lab import apt, ssh
from lab.paths import Settings
from lab.processes import mounts_under
from lab.shell import run, succeeds

HOST_KEY = "etc/ssh/ssh_host_ed25519_key"
ARCHIVE_KEY = "/usr/share/keyrings/lab-archive.asc"


def directory(settings: Settings, name: str) -> Path:
    return settings.boxes / name


def root(settings: Settings, name: str) -> Path:
    return directory(settings, name) / "root"


def mount(settings: Settings, name: str, base: Path) -> Path:
    """Mount the box's disk; a box keeps the base image it was made on, whatever is built later."""
    box = directory(settings, name)
    for part in ("upper", "work", "root"):
        (box / part).mkdir(parents=True, exist_ok=True)
    lower = box / "base"
    if not lower.is_symlink():
        lower.symlink_to(base)
    target = box / "root"
    if target not in mounts_under(box):
        layers = f"lowerdir={lower.readlink()},upperdir={box / 'upper'},workdir={box / 'work'}"
        run(["mount", "-t", "overlay", "-o", layers, "gpufleet-lab", target])
    return target


def unmount(directory: Path) -> None:
    """Unmount all below a directory; what is still in use goes when its last user does."""
    for point in mounts_under(directory):
        if not succeeds(["umount", point]):
            run(["umount", "--lazy", point])


def personalize(settings: Settings, name: str) -> None:
    """Give a new disk its name, address, keys and source of packages. The host key comes last: with it all is there."""
    disk = root(settings, name)
    address = settings.box_address(name)
    write(disk, "etc/machine-id", f"{uuid.uuid4().hex}\n")
    write(disk, "etc/hostname", f"{name}\n")
    write(disk, "etc/hosts", f"127.0.0.1 localhost\n{address} {name}\n::1 localhost ip6-localhost\n")
    write(disk, "etc/resolv.conf", "")  # a nameserver that is not there would cost seconds a look-up
    write(disk, "etc/lab-address", f"ADDRESS={address}/{settings.network.prefixlen}\n")
    write(disk, ARCHIVE_KEY.lstrip("/"), apt.public_key(settings, "debian"))
    write(disk, "etc/apt/sources.list.d/debian.sources", apt.source(settings.url("debian/"), ARCHIVE_KEY))
    for home in ("root", "home/ops", "home/opspw"):
        authorize(disk / home, ssh.public(settings.ssh_key))
    key = disk / HOST_KEY
    ssh.keygen(key.with_name("new_host_key"), name)
    key.with_name("new_host_key.pub").rename(key.with_name(f"{key.name}.pub"))
    key.with_name("new_host_key").rename(key)


def is_personal(settings: Settings, name: str) -> bool:
    return (root(settings, name) / HOST_KEY).exists()


def host_key(settings: Settings, name: str) -> str:
    """The public host key, also of a box that is off."""
    return ssh.public(directory(settings, name) / "upper" / HOST_KEY)


def authorize(home: Path, public_key: str) -> None:
    owner = home.stat()
    folder = home / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    keys = folder / "authorized_keys"
    keys.write_text(public_key)
    keys.chmod(0o600)
    for path in (folder, keys):
        os.chown(path, owner.st_uid, owner.st_gid)


def write(disk: Path, name: str, text: str) -> None:
    path = disk / name
    if path.is_symlink():
        path.unlink()  # a link of the image must not be followed out of the box
    path.write_text(text)
