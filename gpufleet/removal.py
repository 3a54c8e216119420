"""What `gpufleet remove` says of a box: what goes, what stays, and what the next deploy makes of it. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet.errors import BoxError, ConfigError
from gpufleet.fleet import Fleet
from gpufleet.garbage import human
from gpufleet.layers import Layer
from gpufleet.pending import pending
from gpufleet.traits import traits_of
from gpufleet.view import View

COLUMNS = ("what", "size", "")


def rows(items: list[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """The lines of a table: `instance qwen`, its size, what is to be known of it."""
    for item in items:
        yield f"{item['kind']} {item['name']}", human(item["bytes"]) if item["bytes"] else "", item["why"]


def summary(who: str, answer: Mapping[str, Any]) -> str:
    freed = human(sum(item["bytes"] for item in answer["goes"]))
    back = f"; {', '.join(answer['back'])} serves again" if answer["back"] else ""
    return f"{who}: {freed} would be freed{back}"


def models_home(fleet: Fleet, box: str, facts: Mapping[str, Any]) -> str | None:
    """`host.models` of a box: where models lie that a removal before this one left; None where none is set."""
    try:
        view = View(fleet.boxes[box], fleet.layers, Layer("--data", {}))
        return view.settings(traits_of(facts)).settings.host.models
    except (ConfigError, KeyError):  # what goes by facts, on a box of which the look told too little
        return None


def next_deploy(fleet: Fleet, box: str, instance: str | None, facts: Mapping[str, Any]) -> str:
    """What brings back what was removed; empty where nothing does."""
    where = fleet.boxes[box].source.split(":")[0]
    if instance is None:
        return f"{box} is in {where} still: the next deploy sets it up anew, unless you take it out"
    try:
        planned = {each.name for each in pending(fleet, box, facts).plan.instances}
    except (ConfigError, BoxError) as error:
        return f"{box}: whether the next deploy brings {instance} back cannot be told: {error}"
    if instance not in planned:
        return ""
    return f"`serve` of {box} lists {instance} still: the next deploy brings it back, unless you take it out of {where}"
