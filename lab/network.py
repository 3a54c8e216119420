"""The bridge that joins the boxes and the controller, and nothing else."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

from lab.errors import LabError
from lab.paths import Settings
from lab.shell import run


def mark(settings: Settings) -> str:
    """What the bridge is labelled with, so that the lab never takes or removes another's."""
    return f"gpufleet lab {settings.home}"


def find(settings: Settings) -> dict[str, Any] | None:
    """The bridge of this lab; raises when the name is another's."""
    for link in json.loads(run(["ip", "-j", "-d", "link", "show"])):
        if link["ifname"] == settings.bridge:
            if link.get("ifalias") != mark(settings):
                raise LabError(
                    f"the interface {settings.bridge} is there already and is not this lab's",
                    "Name another in GPUFLEET_LAB_BRIDGE, or end the lab it belongs to.",
                )
            found: dict[str, Any] = link
            return found
    return None


def conflict(settings: Settings, addresses: list[dict[str, Any]], routes: list[dict[str, Any]]) -> str | None:
    """What uses the lab's network already, from `ip -j address` and `ip -j route`."""
    for link in addresses:
        for address in link.get("addr_info", []):
            if address.get("family") == "inet" and link["ifname"] != settings.bridge:
                network = ipaddress.ip_network(f"{address['local']}/{address['prefixlen']}", strict=False)
                if network.overlaps(settings.network):
                    return f"{link['ifname']} has {address['local']}/{address['prefixlen']}"
    for route in routes:
        if route["dst"] == "default" or route.get("dev") == settings.bridge:
            continue
        try:
            destination = ipaddress.ip_network(route["dst"], strict=False)
        except ValueError:
            continue
        if destination.prefixlen and destination.overlaps(settings.network):
            return f"there is a route to {route['dst']} by {route.get('dev', '?')}"
    return None


def up(settings: Settings) -> None:
    taken = conflict(settings, json.loads(run(["ip", "-j", "address"])), json.loads(run(["ip", "-j", "-4", "route"])))
    if taken:
        raise LabError(f"the network {settings.network} is in use: {taken}", "Name another in GPUFLEET_LAB_NETWORK.")
    name = settings.bridge
    if find(settings) is None:
        # a hardware address of its own: without one a bridge takes that of a box, and changes it when the box goes
        numbers = [int(part) for part in settings.address.split(".")]
        hardware = "02:67:" + ":".join(f"{number:02x}" for number in numbers)
        run(["ip", "link", "add", name, "address", hardware, "type", "bridge"])
        run(["ip", "link", "set", name, "alias", mark(settings)])
    run(["ip", "address", "replace", settings.interface, "dev", name])
    run(["ip", "link", "set", name, "up"])


def down(settings: Settings) -> bool:
    """Remove the bridge if it is this lab's; whether there was one."""
    try:
        if find(settings) is None:
            return False
    except LabError:
        return False  # another's bridge of that name: nothing of ours
    run(["ip", "link", "delete", settings.bridge])
    return True
