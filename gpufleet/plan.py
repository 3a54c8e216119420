"""The plan of a box: (facts, layers, catalogues) → what is to be served how, each value with its reason. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpufleet.catalogue import Catalogue
from gpufleet.errors import ConfigError
from gpufleet.instance import Instance, make
from gpufleet.layers import Layer
from gpufleet.models import Model
from gpufleet.placement import Unplaced, place
from gpufleet.runtime import Runtime
from gpufleet.settings import Settings
from gpufleet.stacks import Stack
from gpufleet.toolkit import toolkit_for_box
from gpufleet.traits import traits_of
from gpufleet.view import Box, View

__all__ = ["Box", "BoxPlan", "Instance", "plan_box"]


@dataclass(frozen=True)
class BoxPlan:
    """Everything decided about one box.

    + toolkits: versions of the CUDA toolkit it gets by apt, `13-0`
    + unplaced: serve entries that none of its cards can serve
    + hardware_changes: what differs from the facts that were kept, a line each
    """

    box: Box
    facts: Mapping[str, Any]
    traits: list[str]
    settings: Settings
    because: Mapping[str, str]
    toolkits: list[str]
    instances: list[Instance] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)
    hardware_changes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.box.name

    @property
    def toolkit(self) -> str | None:
        """The newest of them, None without any."""
        return max(self.toolkits, key=lambda name: [int(part) for part in name.split("-")], default=None)

    @property
    def stacks(self) -> list[Stack]:
        """The stacks in use, each once."""
        return list({instance.stack.name: instance.stack for instance in self.instances}.values())

    @property
    def runtimes(self) -> list[Runtime]:
        """What is installed of them, each once."""
        return list({instance.runtime.name: instance.runtime for instance in self.instances}.values())

    @property
    def models(self) -> list[Model]:
        return list({instance.model.name: instance.model for instance in self.instances}.values())

    @property
    def idle_gpus(self) -> list[int]:
        """GPUs that no instance has."""
        used = {index for instance in self.instances for index in instance.gpus}
        return [gpu["index"] for gpu in self.facts.get("gpus") or [] if gpu["index"] not in used]

    @property
    def packages(self) -> list[str]:
        """Apt packages the box needs, the toolkits included."""
        names = {package for stack in self.stacks for package in stack.apt}
        return sorted(names | {f"cuda-toolkit-{toolkit}" for toolkit in self.toolkits})


def plan_box(
    box: Box,
    facts: Mapping[str, Any],
    group_layers: Mapping[str, Sequence[Layer]],
    stacks: Catalogue[Stack],
    models: Catalogue[Model],
    overrides: Mapping[str, Any] | None = None,
    *,
    given_by: str = "--data",
    hardware_changes: Sequence[str] = (),
) -> BoxPlan:
    """Decide everything about one box.

    + facts: what the probe answered
    + group_layers: layers of group_data by trait or group
    + overrides: settings of the command line, the strongest; `given_by` is the option they came with
    Raises ConfigError when the settings that meet on this box do not fit together.
    """
    traits = traits_of(facts)
    view = View(box, group_layers, Layer(given_by, overrides or {}))
    merged = view.settings(traits)
    places, unplaced = place(view, facts, stacks, models)
    instances: list[Instance] = []
    for spot in places:
        instances.append(make(view, facts, spot, instances))
    names = [instance.name for instance in instances]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                [f"{box.name}: serve: two instances are called {name!r}; give one of them another `name`"]
            )
    toolkits = toolkit_for_box(facts, merged.settings, instances)
    return BoxPlan(
        box,
        facts,
        traits,
        merged.settings,
        merged.because,
        toolkits,
        instances,
        unplaced,
        list(hardware_changes),
    )
