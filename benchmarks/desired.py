"""The state that every peer brings a box to: what a deploy of one served model puts there, so far as all can.

gpufleet gets it from its own pages (the lab's stand-in engine), the others from the files that are written here. The
service of the others sleeps: it is the work of bringing it there that is compared, not what it serves.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("python3-venv", "libnuma1", "ninja-build")
# As many as a release of gpufleet has, and about as large.
FILES = ("serve.yaml", "serve.env", "start.json", "gate.json", "release.json")


@dataclass(frozen=True)
class Desired:
    """What one peer, of this name, has on a box: all of it below names of its own, so that peers do not meet."""

    peer: str

    @property
    def root(self) -> str:
        return f"/srv/{self.user}"

    @property
    def user(self) -> str:
        return f"bench-{self.peer}"

    @property
    def unit(self) -> str:
        return f"{self.user}.service"

    @property
    def directories(self) -> list[str]:
        below = ("runtimes", "models", "models/standin", "releases", "releases/1", "cache", "logs")
        return [self.root, *(f"{self.root}/{name}" for name in below)]

    @property
    def venv(self) -> str:
        return f"{self.root}/runtimes/venv"

    def unit_text(self) -> str:
        return f"""\
[Unit]
Description=What {self.peer} brought here
After=network.target

[Service]
User={self.user}
EnvironmentFile={self.root}/current/serve.env
ExecStart=/bin/sleep infinity
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
"""


def file_text(name: str, value: int) -> str:
    """One file of a release; `value` is what an owner changes."""
    lines = [f"# {name} of the release", f"MAX_NUM_SEQS={value if name == 'serve.env' else 0}"]
    return "\n".join([*lines, *(f"KEY_{number}=value-{number}" for number in range(20))]) + "\n"


def write_files(folder: Path, desired: Desired, value: int) -> None:
    """The files that plain peers send, below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).write_text(file_text(name, value))
    (folder / desired.unit).write_text(desired.unit_text())


def reset_script(peer: str) -> str:
    """What takes a box back to before this peer's first run: its things gone, and the packages, which are for all."""
    desired = Desired(peer)
    if peer == "gpufleet":
        gone = [
            "systemctl disable --now $(systemctl list-units --all --plain --no-legend 'gpufleet-*' | cut -d' ' -f1)",
            "rm -rf /opt/gpufleet /var/lib/gpufleet /var/cache/gpufleet /etc/systemd/system/gpufleet-*",
            "userdel gpufleet",
        ]
    else:
        gone = [
            f"systemctl disable --now {desired.unit}",
            f"rm -rf {desired.root} /etc/systemd/system/{desired.unit}",
            f"userdel {desired.user}",
        ]
    return "\n".join(
        [
            "exec 2>/dev/null",
            *gone,
            "systemctl daemon-reload",
            f"DEBIAN_FRONTEND=noninteractive apt-get -qq purge -y {' '.join(PACKAGES)} >/dev/null",
            "DEBIAN_FRONTEND=noninteractive apt-get -qq autoremove -y >/dev/null",
            "exit 0",
        ]
    )
