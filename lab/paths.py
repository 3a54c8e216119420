"""Where a lab lives: its directories and its network, from the environment, so that two labs can run side by side."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

REPOSITORY = Path(__file__).resolve().parent.parent
FIRST_BOX_HOST = 10  # lab-1 is .11: the low addresses stay free for the controller


@dataclass(frozen=True)
class Settings:
    """One lab. `cache` may be shared by several labs, everything else is its own."""

    home: Path
    cache: Path
    bridge: str
    network: ipaddress.IPv4Network
    port: int
    torch_index: str

    @property
    def address(self) -> str:
        return str(self.network.network_address + 1)

    @property
    def interface(self) -> str:
        return f"{self.address}/{self.network.prefixlen}"

    @property
    def boxes(self) -> Path:
        return self.home / "boxes"

    @property
    def www(self) -> Path:
        return self.home / "www"

    @property
    def ssh_key(self) -> Path:
        return self.home / "ssh" / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.home / "ssh" / "known_hosts"

    def url(self, path: str) -> str:
        return f"http://{self.address}:{self.port}/{path}"

    def box_address(self, name: str) -> str:
        host = FIRST_BOX_HOST + box_number(name)
        if host >= self.network.num_addresses - 1:
            raise LabError(f"{name}: the network {self.network} has no address left for it", "Ask for fewer boxes.")
        return str(self.network.network_address + host)


def box_name(number: int) -> str:
    return f"lab-{number}"


def box_number(name: str) -> int:
    prefix, _, number = name.partition("-")
    if prefix != "lab" or not number.isdigit() or int(number) < 1:
        raise LabError(f"{name!r} is not a box of the lab", "Boxes are called lab-1, lab-2, …")
    return int(number)


def settings(environment: Mapping[str, str] = os.environ) -> Settings:
    home = Path(environment.get("GPUFLEET_LAB_HOME", "/var/lib/gpufleet-lab"))
    if not home.is_absolute() or len(home.parts) < 3:
        raise LabError(f"GPUFLEET_LAB_HOME={home} is no place for a lab", "Give an absolute path of its own.")
    network = environment.get("GPUFLEET_LAB_NETWORK", "10.213.77.0/24")
    bridge = environment.get("GPUFLEET_LAB_BRIDGE", "gflab0")
    try:
        parsed = ipaddress.IPv4Network(network)
    except ValueError as error:
        raise LabError(f"GPUFLEET_LAB_NETWORK={network}: {error}", "Give a network such as 10.213.77.0/24.") from error
    if not 1 <= len(bridge) <= 8 or not bridge.isalnum():
        # an interface name has 15 characters, and a box's is vb-<bridge>-<number>
        raise LabError(f"GPUFLEET_LAB_BRIDGE={bridge} cannot be used", "Give 1 to 8 letters and digits.")
    return Settings(
        home=home,
        cache=Path(environment.get("GPUFLEET_LAB_CACHE", str(home / "cache"))),
        bridge=bridge,
        network=parsed,
        port=int(environment.get("GPUFLEET_LAB_PORT", "8077")),
        torch_index=environment.get("GPUFLEET_LAB_TORCH_INDEX", "https://download.pytorch.org/whl/cpu"),
    )
