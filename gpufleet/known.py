"""What is known of boxes from earlier looks: their facts, a file each beside the inventory, made to be reviewed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpufleet.errors import ConfigError
from gpufleet.hardware import differences
from gpufleet.kept import parse, problem

# What changes from one look to the next on a box that nobody touched. It is not kept, and read as nothing.
PASSING: dict[str, Any] = {
    "ports": {}, "units": {}, "errors": [], "xid": [], "clock": {}, "shm_free_mib": None, "lock": None,
}  # fmt: skip
PASSING_OF_GPU: dict[str, Any] = {"memory_used_mib": None, "processes": []}
PASSING_OF_DISK: dict[str, Any] = {"coming_mib": 0}
PASSING_OF_MEMORY: dict[str, Any] = {"available_mib": None}
# Of a card, what `gpufleet.hardware` tells; and what it says of the rest of a box in other words.
IDENTITY = ("index", "uuid", "name", "bus_id", "memory_mib")
SAID_OF_HARDWARE = {"CPU: ": "cpu.", "RAM: ": "memory."}
# Of an instance its port: a plan gives it the same again.
KEPT_OF_INSTANCE = ("port",)
FULL = (errno.ENOSPC, errno.EDQUOT)


def stable(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the facts that is kept: what a box is and has, not what it does at the moment."""
    kept = {key: value for key, value in facts.items() if key not in PASSING}
    kept["gpus"] = [_lasting(gpu) for gpu in facts.get("gpus") or []]
    kept["memory"] = _without(facts.get("memory") or {}, PASSING_OF_MEMORY)
    kept["instances"] = {
        name: {key: found[key] for key in KEPT_OF_INSTANCE if found.get(key) is not None}
        for name, found in (facts.get("instances") or {}).items()
    }
    kept["disks"] = {
        path: _without(disk, PASSING_OF_DISK) | {"free_mib": rounded(disk["free_mib"])}
        if disk.get("free_mib") is not None
        else dict(disk)
        for path, disk in (facts.get("disks") or {}).items()
    }
    return kept


def _lasting(gpu: Mapping[str, Any]) -> dict[str, Any]:
    """A card without its use; the generation of its PCIe link falls when it is idle."""
    kept = _without(gpu, PASSING_OF_GPU)
    if isinstance(kept.get("pcie"), Mapping):
        kept["pcie"] = _without(kept["pcie"], {"gen"})
    return kept


def rounded(free_mib: int) -> int:
    """Free space, rounded down to two digits: what a log file takes is no news."""
    step = int(10 ** max(len(str(free_mib)) - 2, 0))
    return free_mib // step * step


def read(path: Path) -> dict[str, Any] | None:
    """Facts as they were kept; None when there are none, or the file is damaged or of another schema."""
    try:
        return _filled(parse(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return None


def ignored(folder: Path, name: str) -> str:
    """That a box's file is there and cannot be read as facts, and why; empty when it can, or there is none."""
    path = folder / f"{name}.json"
    try:
        parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        return f"{path} cannot be read as facts and is ignored ({why})"
    return ""


def read_all(folder: Path, names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """What is known of these boxes; those of which nothing is are left out."""
    found = {name: read(folder / f"{name}.json") for name in names}
    return {name: facts for name, facts in found.items() if facts is not None}


def keep(folder: Path, name: str, facts: Mapping[str, Any]) -> bool:
    """Keep the facts of a box, whole or not at all; a file is left as it is when nothing in it but the time changed.

    Returns whether it was written. Facts in which the driver does not show its cards are not kept: they would make a
    box without GPUs of it; nor are those that could not be read again. Raises ConfigError when the folder cannot be
    written.
    """
    if not telling(facts) or problem(stable(facts)):
        return False
    path = folder / f"{name}.json"
    new, old = stable(facts), read(path)
    if old is not None and _without(stable(old), {"at": None}) == _without(new, {"at": None}):
        return False
    aside = path.with_suffix(f".{os.getpid()}.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps(new, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        with suppress(OSError):
            aside.unlink()
        remedy = "free some space there" if error.errno in FULL else f"make {folder} writable for this user"
        raise ConfigError([f"facts cannot be kept: {error}; {remedy}"]) from None
    return True


def telling(facts: Mapping[str, Any]) -> bool:
    """Whether a look told what the box is: not when a driver shows no card, or a card does not answer."""
    gpus = facts.get("gpus") or []
    failed = {error["source"] for error in facts.get("errors") or []}
    if gpus:
        return all(gpu.get("uuid") and gpu.get("compute_capability") for gpu in gpus)
    return not (facts.get("driver") or failed & {"nvml", "driver"})


def news(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What changed between two looks, a line each: the hardware first, then driver, system, packages and the rest."""
    hardware = differences(old, new)
    both = {gpu["uuid"] for gpu in old.get("gpus") or []} & {gpu["uuid"] for gpu in new.get("gpus") or []}
    before, now = _flat(_beside_hardware(old, both)), _flat(_beside_hardware(new, both))
    said = [prefix for word, prefix in SAID_OF_HARDWARE.items() if any(line.startswith(word) for line in hardware)]
    keys = [key for key in sorted({*before, *now}) if not key.startswith(tuple(said))]
    return hardware + [
        f"{key}: {_said(before.get(key))} before, {_said(now.get(key))} now"
        for key in keys
        if before.get(key) != now.get(key)
    ]


def _beside_hardware(facts: Mapping[str, Any], uuids: Collection[str]) -> dict[str, Any]:
    """What is kept of a box, without what `differences` tells; its cards by index, those of `uuids` only."""
    kept = _without(stable(facts), {"machine_id", "links", "at"})
    cards = [gpu for gpu in kept["gpus"] if gpu["uuid"] in uuids]
    return {**kept, "gpus": {str(gpu["index"]): _without(gpu, IDENTITY) for gpu in cards}}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"driver": {"version": "580"}}` as `{"driver.version": "580"}`; a list of mappings goes by its numbers."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            value = {str(number): item for number, item in enumerate(value)}
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _said(value: Any) -> str:
    if value is None or value == {} or value == []:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def _filled(facts: dict[str, Any]) -> dict[str, Any]:
    """With what is not kept, as nothing, so that whoever reads facts finds every key."""
    gpus = [{**PASSING_OF_GPU, **gpu} for gpu in facts.get("gpus") or []]
    memory = {**PASSING_OF_MEMORY, **(facts.get("memory") or {})}
    return {**PASSING, **facts, "gpus": gpus, "memory": memory}


def _without(values: Mapping[str, Any], left_out: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in left_out}
