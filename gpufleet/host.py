"""Settings of the box itself: what an owner wants of cards, processor and kernel, beside the facts. No I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet.plan import BoxPlan

UNIT = "gpufleet-host.service"
OF_BOOT = ("persistence_mode", "power_limit", "governor", "overcommit_memory", "swappiness")  # hostkit/host_state.py


def wanted(plan: BoxPlan) -> dict[str, Any]:
    """What the kit's verb `host` is to see to; keys that the owner did not set are not in it."""
    host = plan.settings.host
    found: dict[str, Any] = {
        "persistence_mode": host.persistence_mode if _cards(plan) else None,
        "power_limit": limits(plan) or None,
        "governor": host.governor,
        "overcommit_memory": host.overcommit_memory,
        "swappiness": host.swappiness,
        "hosts_entry": host.hosts_entry or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def limits(plan: BoxPlan) -> dict[str, int]:
    """Watts by UUID, of the cards for which there is a limit; a card's UUID goes before its name."""
    limit = plan.settings.host.power_limit
    if limit is None:
        return {}
    if isinstance(limit, int):
        return {gpu["uuid"]: limit for gpu in _cards(plan)}
    found = {}
    for gpu in _cards(plan):
        names = [key for key in limit if is_called(gpu, key)]
        if names:
            found[gpu["uuid"]] = limit[gpu["uuid"] if gpu["uuid"] in names else max(names, key=len)]
    return found


def is_called(gpu: Mapping[str, Any], key: str) -> bool:
    """Whether a key means this card: its UUID, its name as nvidia-smi has it, or the end of that (`RTX 3090`)."""
    name = str(gpu.get("name") or "")
    return key == gpu.get("uuid") or key == name or name.endswith(f" {key}")


def lines(plan: BoxPlan) -> list[str]:
    """What would be changed on the box, a line each; nothing where it did not tell of these things."""
    told = plan.facts.get("host")
    blind = not plan.facts.get("gpus") and any(
        error.get("source") == "nvml" for error in plan.facts.get("errors") or []
    )
    if told is None or blind:  # a driver that hangs now is no reason to forget the limits of its cards
        return []
    want = wanted(plan)
    refused = told.get("refused") or {}
    found = [
        line
        for key, value, line in _differences(plan, want)
        # What the box refused is not tried again for as long as the same is wanted: rule GF610 tells of it.
        if refused.get(key, {}).get("wanted") != value
    ]
    return found + list(_unit(want, told))


def refused(plan: BoxPlan) -> Iterator[tuple[str, str]]:
    """(`vm.swappiness is not 10`, why) of what is wanted still and the box did not take."""
    known = (plan.facts.get("host") or {}).get("refused") or {}
    want = wanted(plan)
    for key, item in sorted(known.items()):
        name, _, uuid = key.partition(".")
        value = want.get(name)
        if isinstance(value, Mapping):
            value = value.get(uuid)
        if value is not None and value == item["wanted"]:
            yield f"{said(plan, key)} is not {_word(name, value)}", item["why"]


def said(plan: BoxPlan, key: str) -> str:
    """How people call a setting: `the power limit of GPU 1`."""
    name, _, uuid = key.partition(".")
    index = next((gpu["index"] for gpu in _cards(plan) if gpu["uuid"] == uuid), None)
    of = f" of GPU {index}" if index is not None else f" of {uuid}" if uuid else ""
    words = {
        "persistence_mode": "persistence mode",
        "power_limit": "the power limit",
        "governor": "the CPU governor",
        "overcommit_memory": "vm.overcommit_memory",
        "swappiness": "vm.swappiness",
        "hosts_entry": "the box's name in /etc/hosts",
    }
    return words.get(name, name) + of


def _differences(plan: BoxPlan, want: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """(key, wanted value, line) of each value that is otherwise on the box."""
    facts = plan.facts
    for key, value, found in _beside(plan, want):
        if found != value:
            was = "unknown" if found is None else _word(key.split(".")[0], found)
            yield key, value, f"set {said(plan, key)} to {_word(key.split('.')[0], value)} (it is {was})"
    if want.get("hosts_entry") and facts.get("hosts_entry") is False:
        yield "hosts_entry", True, f"put {facts.get('hostname') or 'the box'} into /etc/hosts"


def _beside(plan: BoxPlan, want: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(key, wanted value, the box's) of what is applied at each boot."""
    facts = plan.facts
    for gpu in _cards(plan):
        uuid = gpu["uuid"]
        if "persistence_mode" in want:
            yield f"persistence_mode.{uuid}", want["persistence_mode"], gpu.get("persistence")
        if uuid in want.get("power_limit", {}):
            yield f"power_limit.{uuid}", want["power_limit"][uuid], (gpu.get("power") or {}).get("limit_w")
    if "governor" in want:
        yield "governor", want["governor"], (facts.get("cpu") or {}).get("governor")
    for key in ("overcommit_memory", "swappiness"):
        if key in want:
            yield key, want[key], facts.get(key)


def _unit(want: Mapping[str, Any], told: Mapping[str, Any]) -> Iterator[str]:
    """The unit that applies all that again at each boot."""
    of_boot = {key: want[key] for key in OF_BOOT if key in want}
    if not of_boot:
        if told["unit"] != "missing" or told["settings"]:
            yield f"remove {UNIT}: nothing is set for it"
    elif told["unit"] != "current":
        yield f"install {UNIT}: it is {told['unit']}"
    elif told["settings"] != digest(of_boot):
        yield f"renew what {UNIT} applies"


def digest(of_boot: Mapping[str, Any]) -> str:
    """Of the file that the kit keeps of them."""
    return hashlib.sha256((json.dumps(of_boot, indent=1, sort_keys=True) + "\n").encode()).hexdigest()[:16]


def _word(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return ("missing", "there")[value] if name == "hosts_entry" else ("off", "on")[value]
    return f"{value} W" if name == "power_limit" else str(value)


def _cards(plan: BoxPlan) -> list[Mapping[str, Any]]:
    """Those that can be told from each other."""
    return [gpu for gpu in plan.facts.get("gpus") or [] if gpu.get("uuid")]
