"""What a look is to tell of a box beside what it always tells: by name, for all boxes of a fleet alike.

Before the look nobody knows which layers apply to a box, so all of them are asked about everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet.fleet import Fleet
from gpufleet.settings import folder
from gpufleet.toolkit import NEWEST, NEWEST_BELOW_75


@dataclass(frozen=True)
class Wanted:
    """+ packages: whose state it tells; + units: of the owners', that `serve` entries replace
    + places: folders where models may be wanted
    """

    packages: frozenset[str] = frozenset()
    units: frozenset[str] = frozenset()
    places: frozenset[str] = frozenset()

    def spec(self) -> dict[str, Any]:
        """As the kit is asked. What nobody wants is left out: it is sent to every box at every run."""
        asked = {"packages": self.packages, "units": self.units, "places": self.places}
        return {key: sorted(names) for key, names in asked.items() if names or key == "packages"}


def of(fleet: Fleet, overrides: Mapping[str, Any]) -> Wanted:
    """What plans of this fleet go by. + overrides: settings of the command line"""
    layers = [layer.values for found in fleet.layers.values() for layer in found]
    layers += [box.data for box in fleet.boxes.values()]
    layers.append(dict(overrides))
    hosts = [layer.get("host") or {} for layer in layers]
    entries = [entry for layer in layers for entry in layer.get("serve") or [] if isinstance(entry, Mapping)]
    toolkits = {stack.cuda_toolkit for stack in fleet.stacks.values()} | {NEWEST, NEWEST_BELOW_75}
    toolkits |= {host.get("toolkit") for host in hosts}
    return Wanted(
        frozenset(
            {package for stack in fleet.stacks.values() for package in stack.apt}
            | {f"cuda-toolkit-{toolkit}" for toolkit in toolkits if toolkit}
        ),
        frozenset(unit for entry in entries for unit in entry.get("replaces") or []),
        frozenset(folder(place) for host in hosts if (place := host.get("models"))),  # --data is as it was typed,
    )
