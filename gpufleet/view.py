"""A box's settings as an instance sees them: layers of the traits it has, its entry's own, the command line's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpufleet.layers import Layer, Merged, merge, order
from gpufleet.settings import Serve


@dataclass(frozen=True)
class Box:
    """A box as the inventory has it: `data` are its own settings, `groups` the owner's groups it is in."""

    name: str
    data: Mapping[str, Any]
    groups: tuple[str, ...] = ()
    source: str = "inventory"


@dataclass
class View:
    """Everything that was written for a box.

    + group_layers: layers of group_data by trait or group
    + overrides: the strongest, of the command line
    """

    box: Box
    group_layers: Mapping[str, Sequence[Layer]]
    overrides: Layer
    _merged: dict[tuple[str, ...], Merged] = field(default_factory=dict)

    def settings(self, traits: Sequence[str]) -> Merged:
        """Resolved for something that has these traits. Raises ConfigError when they do not fit together."""
        key = tuple(traits)
        if key not in self._merged:
            names = order(traits, self.box.groups)
            layers = [layer for name in names for layer in self.group_layers.get(name, ())]
            self._merged[key] = merge([*layers, Layer(self.box.source, self.box.data), self.overrides])
        return self._merged[key]

    def entry_layer(self, entry: Serve, traits: Sequence[str]) -> Layer:
        """A serve entry as a layer: between the box's own data and the command line."""
        where = self.settings(traits).given.source("serve") or self.box.source
        own = {"stack", "options", "tensor_parallel_size", "instances", "streams"}
        values = entry.model_dump(exclude_unset=True, include=own)
        return Layer(f"{where}, serve entry", {**values, "serve_args": entry.args, "serve_env": entry.env})

    def layers(self, entry: Serve, traits: Sequence[str]) -> Iterator[Layer]:
        """The owner's layers for an instance, weakest first."""
        *before, last = self.settings(traits).layers
        yield from before
        yield self.entry_layer(entry, traits)
        yield last


def strongest(layers: Sequence[Layer], key: str) -> tuple[Any, str | None]:
    """The value of a setting and the source of it; (None, None) when none has it, or the strongest takes it away."""
    for layer in reversed(layers):
        if key in layer.values:
            value = layer.values[key]
            return value, layer.source if value is not None else None
    return None, None
