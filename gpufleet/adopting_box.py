"""All services of a box adopted together, beside what its inventory has for it already. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpufleet import adopting, paths
from gpufleet.adopting import Adopted, Asked
from gpufleet.adopting_item import Item
from gpufleet.adopting_model import find
from gpufleet.adopting_told import held
from gpufleet.catalogue import Catalogue
from gpufleet.errors import ConfigError
from gpufleet.fleet import Fleet
from gpufleet.layers import Layer
from gpufleet.models import Model
from gpufleet.planning import Planned, checked_plan
from gpufleet.traits import traits_of
from gpufleet.view import View


@dataclass(frozen=True)
class Looked:
    """What a box serves already.

    + services: what became of each; + kept: entries of the inventory that stay beside them
    + planned: the box with all of these entries, and its findings; None where nothing is adopted
    """

    services: list[Adopted]
    kept: list[dict[str, Any]]
    planned: Planned | None

    @property
    def entries(self) -> list[Mapping[str, Any]]:
        return [item.entry for item in self.services if item.entry is not None]


def adopt_all(
    fleet: Fleet,
    box: str,
    facts: Mapping[str, Any],
    services: Iterable[Mapping[str, Any]],
    text_of: Callable[[Model], str],
) -> Looked:
    """Every service of a box that can be, as entries that fit beside one another.

    + services: as hostkit.adoptable tells of them; + text_of: the text of a page of the catalogue
    Raises ConfigError when the inventory's own settings do not fit the box.
    """
    found: list[Adopted] = []
    kept = existing(fleet, box, facts)
    asked = Asked(fleet, box, facts, fleet.models)
    told = [{**service, "gpus": held(facts, service.get("pids") or ())} for service in services]
    for service in told:
        new = [item.entry for item in found if item.entry is not None]
        asked.before = [*kept, *new]
        names = [item.instance.name for item in found if item.instance]
        why = adopting.why_not(service) or _has(kept, service)
        one = Adopted(service, why_not=why) if why else _one(asked, service, text_of, names)
        kept = [entry for entry in kept if entry in asked.before]
        found.append(_with_others(one, told))
    new = [item.entry for item in found if item.entry is not None]
    if not new:
        return Looked(found, kept, None)
    asked.before = [*kept, *new[:-1]]
    return Looked(found, kept, checked_plan(asked.plan(new[-1])))


def _one(asked: Asked, service: Mapping[str, Any], text_of: Callable[[Model], str], names: Sequence[str]) -> Adopted:
    try:
        page = find(service["model"], asked.models, asked.box, elsewhere(asked.fleet, asked.box), text_of)
        asked.models = Catalogue("model", {**asked.models, page.model.name: page.model})
        # An entry for the same model or port was written for this service.
        asked.before = [item for item in asked.before if not _instead(item, page.model.name, service)]
        return adopting.adopt(asked, service, page, names)
    except ConfigError as error:
        return Adopted(service, why_not="; ".join(error.problems))


def _with_others(found: Adopted, services: Sequence[Mapping[str, Any]]) -> Adopted:
    """With a word on other servers that its unit starts, too."""
    unit, pid = found.service.get("unit"), found.service["pid"]
    others = [item["pid"] for item in services if unit and item.get("unit") == unit and item["pid"] != pid]
    if found.entry is None or not others or "replaces" not in found.entry:
        return found
    pids = ", ".join(map(str, others))
    why = f"it starts other servers, too (pid {pids}): all stop when the first instance takes its place"
    return replace(found, items=[*found.items, Item("left", "unit", unit, None, why)])


def _has(kept: Iterable[Mapping[str, Any]], service: Mapping[str, Any]) -> str | None:
    """Whether an entry of the inventory takes its place already."""
    for entry in kept:
        if service.get("unit") and service["unit"] in (entry.get("replaces") or ()):
            return f"the inventory has it: its entry of {entry['model']} replaces {service['unit']}; deploy the box"
    return None


def _instead(entry: Mapping[str, Any], model: str, service: Mapping[str, Any]) -> bool:
    if entry.get("replaces"):
        return False
    return entry["model"] == model or (entry.get("port") or 0) == service.get("port")


def existing(fleet: Fleet, box: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The `serve` entries that the box has by its inventory, as mappings."""
    traits = traits_of(facts)
    serve = View(fleet.boxes[box], fleet.layers, Layer(adopting.SOURCE, {})).settings(traits).settings.serve
    return [{"model": item} if isinstance(item, str) else item.model_dump(exclude_unset=True) for item in serve]


def elsewhere(fleet: Fleet, box: str) -> set[str]:
    """Names of models whose pages must go on meaning what they mean: those that other boxes or groups serve, and those
    of folders that are stronger than the fleet's own, where a page of that name would not count."""
    data: list[Mapping[str, Any]] = [other.data for other in fleet.boxes.values() if other.name != box]
    data += [layer.values for layers in fleet.layers.values() for layer in layers]
    served = {item if isinstance(item, str) else item["model"] for each in data for item in each.get("serve") or ()}
    weaker = {folder.resolve() for folder in paths.model_folders(fleet.root)}
    return served | {model.name for model in fleet.models.values() if model.path.parent.resolve() not in weaker}
