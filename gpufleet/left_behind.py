"""Boxes that are known from earlier looks and are in the inventory no more: named until they are removed or forgotten.

Where each box was reached lies beside its facts, in one file for all, without passwords.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpufleet import known, paths
from gpufleet.address import parse, problems
from gpufleet.errors import ConfigError
from gpufleet.fleet import Fleet
from gpufleet.plan import Box

FILE = ".addresses.json"  # no name of a box begins with a dot
KEYS = ("ssh_hostname", "ssh_port", "ssh_user", "ssh_key", "ssh_config_file", "ssh_known_hosts_file")
SERVES = "serves"
Addresses = dict[str, dict[str, Any]]


def read(folder: Path) -> Addresses:
    """How boxes were reached, by name; nothing when the file is not there or damaged."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    items = found.items() if isinstance(found, dict) else ()
    wanted = (*KEYS, SERVES)
    return {name: {key: item[key] for key in wanted if key in item} for name, item in items if isinstance(item, dict)}


def note(fleet: Fleet, names: Iterable[str], serves: Mapping[str, list[str]] | None = None) -> None:
    """Keep how these boxes are reached. Where the folder cannot be written, they will have to be told by hand.

    + serves: the instances that a deploy plans for each
    """
    before, planned = read(fleet.facts_folder), serves or {}
    reached = {}
    for name in names:
        address = {key: fleet.addresses[name][key] for key in KEYS if key in fleet.addresses[name]}
        told = planned[name] if name in planned else (before.get(name) or {}).get(SERVES)
        reached[name] = {**address, **({SERVES: told} if told else {})}
    if any(before.get(name) != address for name, address in reached.items()):
        with suppress(OSError):
            _write(fleet.facts_folder, {**before, **reached})


def forget(fleet: Fleet, name: str) -> bool:
    """Drop what is known of a box; whether anything was. A path is no name. Raises OSError."""
    if Path(name).name != name:
        return False
    path = fleet.facts_folder / f"{name}.json"
    there = path.exists()
    path.unlink(missing_ok=True)
    addresses = read(fleet.facts_folder)
    if name in addresses:
        _write(fleet.facts_folder, {key: value for key, value in addresses.items() if key != name})
    fleet.facts.pop(name, None)
    return there or name in addresses


def _write(folder: Path, addresses: Addresses) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f"{FILE}.{os.getpid()}.part"
    try:
        aside.write_text(json.dumps(addresses, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        aside.replace(folder / FILE)
    finally:
        aside.unlink(missing_ok=True)


def names(fleet: Fleet) -> list[str]:
    """Boxes with facts beside this inventory that are not in it."""
    return sorted(path.stem for path in fleet.facts_folder.glob("*.json") if _is_left(fleet, path))


def _is_left(fleet: Fleet, path: Path) -> bool:
    return not path.name.startswith(".") and path.stem not in fleet.boxes


def lines(fleet: Fleet) -> Iterator[str]:
    """What is said of each, with what to do."""
    addresses, inventory = read(fleet.facts_folder), shlex.quote(str(paths.as_given(fleet.inventory)))
    for name in names(fleet):
        facts = known.read(fleet.facts_folder / f"{name}.json")
        address = addresses.get(name)
        if other := namesake(fleet, name, facts or {}, address):
            yield f"{name} is not in the inventory any more, and is {other} now: `gpufleet forget {inventory} {name}`"
            continue
        seen, planned = (facts or {}).get("instances") or {}, (address or {}).get(SERVES) or []
        served = f"when last looked at it served {', '.join(seen) or 'nothing'}"
        if planned and not seen:  # what it got after the only look
            served = f"it was to serve {', '.join(map(str, planned))}"
        where = None if address is None else address.get("ssh_hostname") or name
        call = f"gpufleet remove {inventory} {name}" + ("" if where else " --address ADDRESS")
        yield (
            f"{name} is not in the inventory any more; {served}"
            f"{f' on {where}' if where else ''}. What gpufleet put there stays: `{call}`, or forget it: "
            f"`gpufleet forget {inventory} {name}`"
        )


def namesake(fleet: Fleet, name: str, facts: Mapping[str, Any], address: Mapping[str, Any] | None) -> str | None:
    """The box of the inventory that this one is, by another name: the same machine, or at the same place.

    + address: None where it is not known
    """
    machine = facts.get("machine_id")
    for other, data in fleet.addresses.items():
        same = machine and (fleet.facts.get(other) or {}).get("machine_id") == machine
        if same or (address is not None and _place(other, data) == _place(name, address)):
            return other
    return None


def _place(name: str, address: Mapping[str, Any]) -> tuple[str, int]:
    return str(address.get("ssh_hostname") or name), address.get("ssh_port") or 22


def taken_in(fleet: Fleet, name: str, address: str | None) -> None:
    """Have a box that is in the inventory no more among the fleet's, for the command that removes it.

    + address: where it is, `[USER@]HOST[:PORT]`; None: where it was reached last
    Raises ConfigError when that is not known, or it is a box of the inventory by another name.
    """
    if name in fleet.boxes:
        if address is not None:
            raise ConfigError([f"{name} is in the inventory, with its address: leave out --address"])
        return
    data = read(fleet.facts_folder).get(name)
    if data is None and address is None and name not in names(fleet):
        return  # whoever looks for it says so
    if address is not None:
        given = parse(address)
        if given is None:
            raise ConfigError([f"--address {address!r}: write [USER@]HOST[:PORT]"])
        if wrong := list(problems(given)):
            raise ConfigError(f"--address {address!r}: {problem}" for problem in wrong)
        data = {**(data or {}), **given}
    if data is None:
        raise ConfigError([f"{name} is not in the inventory any more, and nobody knows its address: give --address"])
    facts = known.read(fleet.facts_folder / f"{name}.json") or {}
    if other := namesake(fleet, name, facts, data):
        raise ConfigError(
            [f"{name} is {other} of the inventory now; to remove that, name it; to forget the old name: "
             f"`gpufleet forget {paths.as_given(fleet.inventory)} {name}`"]
        )  # fmt: skip
    fleet.addresses[name] = {key: value for key, value in data.items() if key in KEYS}
    fleet.boxes[name] = Box(name, {}, ("fleet", fleet.inventory.stem), f"{fleet.facts_folder / FILE}: box {name}")
    if facts:
        fleet.facts[name] = facts
