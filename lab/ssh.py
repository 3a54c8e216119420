"""The lab's own ssh identity and the keys of its boxes: made here, so that known_hosts is right from the start."""

from __future__ import annotations

from pathlib import Path

from lab.paths import Settings
from lab.shell import run


def identity(settings: Settings) -> Path:
    """The private key of the lab's user, made when it is missing."""
    if not settings.ssh_key.exists():
        settings.ssh_key.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        keygen(settings.ssh_key, "gpufleet lab")
    return settings.ssh_key


def keygen(path: Path, comment: str) -> None:
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])


def public(path: Path) -> str:
    return path.with_name(f"{path.name}.pub").read_text()


def know(settings: Settings, keys: dict[str, str]) -> None:
    """Write known_hosts: {box: its public host key}."""
    lines = [f"{name},{settings.box_address(name)} {' '.join(key.split()[:2])}\n" for name, key in sorted(keys.items())]
    aside = settings.known_hosts.with_suffix(".new")
    aside.write_text("".join(lines))
    aside.replace(settings.known_hosts)


def command(settings: Settings, address: str, arguments: list[str], user: str = "root") -> list[str]:
    return [
        "ssh", "-F", "none", "-i", str(settings.ssh_key), "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes",
        "-o", f"UserKnownHostsFile={settings.known_hosts}", "-o", "ConnectTimeout=10", f"{user}@{address}", *arguments,
    ]  # fmt: skip
