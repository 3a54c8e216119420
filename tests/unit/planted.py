"""One of each kind of thing that a bundle must not have, all different for each source, and lines that name them."""

from __future__ import annotations

import base64
import hashlib
import uuid
from random import Random
from typing import Any


class Planted:
    """`number` tells the sources apart; the same number is the same things."""

    def __init__(self, number: int) -> None:
        chance = Random(number)
        self.number = number
        self.user = f"ottilie{number}x"
        self.home = f"wilhelmine{number}x"
        self.person = f"Ottilie{number} Kobold{number}"
        self.host = f"keller{number}kobold"
        self.domain = f"werkstatt{number}kobold.example"
        self.inside = f"speicher{number}kobold.lan"
        self.ipv4 = f"10.20.{number}.77"
        self.ipv6 = f"2001:db8:{number:x}::77aa"
        self.mac = f"02:42:ac:11:{number:02x}:a7"
        self.card = f"GPU-{uuid.UUID(int=chance.getrandbits(128))}"
        self.uuid = str(uuid.UUID(int=chance.getrandbits(128)))
        self.machine_id = f"{chance.getrandbits(128):032x}"
        self.key = "AAAAC3NzaC1lZDI1NTE5" + base64.b64encode(chance.randbytes(39)).decode()
        self.fingerprint = "SHA256:" + base64.b64encode(chance.randbytes(32)).decode().rstrip("=")
        self.token = "hf_" + base64.b32encode(chance.randbytes(20)).decode()
        self.password = f"Pa55wort{number}geheim"
        self.hashed = hashlib.sha256(self.password.encode()).hexdigest()
        self.serial = f"S5Y1NG0N{number:06d}"
        self.email = f"kobold{number}.post@firma{number}.example.org"
        self.hub = f"kobold{number}-hub"
        self.disk = f"ata-Samsung_SSD_{number:04d}_S6B2NS{number:06d}"

    def all(self) -> dict[str, str]:
        """What must not be found, by what it is."""
        return {name: value for name, value in vars(self).items() if isinstance(value, str)}

    def lines(self) -> list[str]:
        """As logs, configurations and command lines have them."""
        return [
            f"Accepted publickey for {self.user} from {self.ipv4} port 50022 ssh2: ED25519 {self.fingerprint}",
            f"{self.user}@{self.host}:~$ ssh {self.inside}",
            f"inet6 addr:{self.ipv6}/64 link/ether {self.mac} peer [{self.ipv6}]:8000",
            f"model='/home/{self.home}/models/x' card {self.card} volume {self.uuid} machine {self.machine_id}",
            f"ssh-ed25519 {self.key} {self.user}@{self.host}",
            f"HF_TOKEN={self.token} password: {self.password} sha256={self.hashed}",
            f"serial number: {self.serial} on /dev/disk/by-id/{self.disk}-part1",
            f"mail to {self.email}, or GET https://{self.host}.{self.domain}:8443/x?signature={self.password}",
            f"https://huggingface.co/{self.hub}/private-model/resolve/main/config.json",
            f"{self.user} said so on {self.host.upper()}, and {self.home} on {self.inside} too",
        ]

    def text(self) -> str:
        return " | ".join(self.lines())

    def identity(self) -> dict[str, Any]:
        """What a box with these would tell as `identity` (hostkit.evidence)."""
        return {
            "hosts": [self.host, f"{self.host}.{self.domain}"],
            "domains": [self.domain],
            "users": [self.user],
            "people": [self.person],
            "macs": [self.mac],
            "serials": [self.serial],
            "ids": [self.machine_id],
        }
