"""What a report of a problem needs of a box beside its facts, in one answer; nothing is changed.

`identity` is only for taking these names out of the rest: what the box, its owner and its parts are called.
"""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any

from hostkit import journal, state, systemd, unit_log
from hostkit.errors import Failure
from hostkit.releases import unit_name
from hostkit.roots import Roots

RUNTIMES = "/opt/gpufleet/runtimes"
USERS = range(1000, 65000)  # ids of people, by Debian's policy; below are the system's own
DMI = ("product_serial", "board_serial", "chassis_serial", "product_uuid", "chassis_asset_tag", "board_asset_tag")
NO_SERIAL = ("none", "default string", "to be filled by o.e.m.", "not specified", "system serial number", "unknown")


def run(spec: dict, roots: "Roots | None" = None) -> dict:
    """spec: + instances: names; + events: how many of the journal; + log: lines of each instance's log

    Returns {"identity", "state": text of state.json or None, "events", "logs": {instance: [text]}, "argv": {instance:
    [words of its process]}, "packages": {runtime: {distribution: version}}, "cmdline", "errors": [text]}.
    """
    root = roots or Roots()
    found: dict = {"errors": [], "logs": {}, "argv": {}}
    for name in spec["instances"]:
        try:
            found["logs"][name] = unit_log.last([name], spec["log"])
            found["argv"][name] = argv(root, systemd.show(unit_name(name))["pid"])
        except Failure as failure:
            found["errors"].append("{}: {}".format(name, failure.cause))
    return {
        **found,
        "identity": identity(root),
        "state": kept(root),
        "events": journal.last(spec["events"], None),
        "packages": {name: distributions(root, name) for name in root.names(RUNTIMES) if not name.startswith(".")},
        "cmdline": (root.text_or_none("/proc/cmdline") or "").strip(),
    }


def kept(roots: Roots) -> Any:
    """state.json as JSON; as a text when it is none; None without one."""
    text = roots.text_or_none(state.STATE)
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def argv(roots: Roots, pid: Any) -> list:
    """The words that a process was started with; none of one that is gone."""
    text = roots.text_or_none("/proc/{}/cmdline".format(pid)) if pid else None
    return (text or "").rstrip("\0").split("\0") if text else []


def distributions(roots: Roots, runtime: str) -> dict:
    """{distribution: version} of a runtime, by its folders `name-version.dist-info`."""
    found = {}
    for path in glob.glob(roots.path(RUNTIMES + "/" + glob.escape(runtime)) + "/lib/python*/site-packages/*.dist-info"):
        name, _, version = os.path.basename(path)[: -len(".dist-info")].rpartition("-")
        found[name] = version
    return dict(sorted(found.items()))


def identity(roots: Roots) -> dict:
    """{"hosts", "domains", "users", "people", "macs", "serials", "ids"}: lists of texts."""
    hosts, domains = hosts_of(roots)
    users, people = people_of(roots)
    return {
        "hosts": hosts,
        "domains": domains,
        "users": users,
        "people": people,
        "macs": read(roots, "/sys/class/net/*/address"),
        "serials": [text for text in serials(roots) if len(text) > 3 and text.lower() not in NO_SERIAL],
        "ids": read(roots, "/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/var/lib/dbus/machine-id"),
    }


def hosts_of(roots: Roots) -> tuple:
    """(names of this box and of those it knows by /etc/hosts, its search domains)"""
    known = [os.uname().nodename] if roots.real else []
    known += (roots.text_or_none("/etc/hostname") or "").split()
    for line in (roots.text_or_none("/etc/hosts") or "").splitlines():
        known += line.split("#")[0].split()[1:]
    words = re.findall(r"^\s*(?:search|domain)\s+(.+)$", roots.text_or_none("/etc/resolv.conf") or "", re.MULTILINE)
    domains = [domain.strip(".") for line in words for domain in line.split() if domain.strip(".")]
    return list(dict.fromkeys(known)), list(dict.fromkeys(domains))


def people_of(roots: Roots) -> tuple:
    """(login names, full names) of the people who have a login"""
    users, people = [], []
    for line in (roots.text_or_none("/etc/passwd") or "").splitlines():
        fields = line.split(":")
        if len(fields) > 5 and fields[2].isdigit() and int(fields[2]) in USERS:
            users.append(fields[0])
            people.append(fields[4].split(",")[0].strip())
    return users, [name for name in people if name]


def serials(roots: Roots) -> list:
    """Of the board and of disks, as far as the kernel tells them."""
    return [
        *read(roots, *("/sys/class/dmi/id/" + name for name in DMI)),
        *read(roots, "/sys/block/*/device/serial", "/sys/block/*/serial", "/sys/block/*/device/wwid"),
        *read(roots, "/sys/block/*/wwid"),
    ]


def read(roots: Roots, *patterns: str) -> list:
    """What files hold, a text each; those that cannot be read are left out."""
    found = []
    for pattern in patterns:
        for path in sorted(glob.glob(roots.path(pattern))):
            try:
                with open(path, encoding="utf-8", errors="replace") as handle:
                    found.append(handle.read(4096).strip("\0 \n"))
            except OSError:
                continue
    return [text for text in dict.fromkeys(found) if text]
