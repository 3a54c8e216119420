"""A fleet: the boxes of an inventory, the layers that apply to them, the catalogues, and its groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from gpufleet import ssh_config
from gpufleet.catalogue import Catalogue
from gpufleet.errors import ConfigError, nearest
from gpufleet.layers import Layer
from gpufleet.models import Model
from gpufleet.plan import Box
from gpufleet.stacks import Stack
from gpufleet.traits import is_trait, traits_of


@dataclass
class Fleet:
    """An inventory that was checked. `facts` are those known of earlier looks, by box; a look adds to them."""

    root: Path
    inventory: Path
    boxes: dict[str, Box]
    addresses: dict[str, dict[str, Any]]
    layers: dict[str, list[Layer]]
    stacks: Catalogue[Stack]
    models: Catalogue[Model]
    facts: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def facts_folder(self) -> Path:
        """Where the facts of its boxes are kept, beside the inventory."""
        return self.inventory.parent / "facts" / self.inventory.stem

    @property
    def reports_folder(self) -> Path:
        """Where the reports of its runs are kept, beside the facts."""
        return self.inventory.parent / "reports" / self.inventory.stem

    def groups(self) -> dict[str, list[Any]]:
        """A pyinfra group for each trait that some box is known to have, and one of all boxes."""
        groups: dict[str, list[Any]] = {"fleet": [(name, self.connection(name)) for name in self.boxes]}
        return {**groups, **self._by_trait()}

    def connection(self, name: str) -> dict[str, Any]:
        """pyinfra's data of a box. Host keys are checked, always: unknown ones are asked about before it connects."""
        data = self.addresses[name]
        if file := data.get("ssh_config_file"):  # pyinfra expands no ~ of it
            data = {**data, "ssh_config_file": ssh_config.expanded(file)}
        return {**data, "ssh_strict_host_key_checking": "yes"}

    def _by_trait(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for name in self.boxes:
            for trait in traits_of(self.facts[name]) if name in self.facts else ():
                groups.setdefault(trait, []).append(name)
        return groups

    def by_hand(self) -> dict[str, list[str]]:
        """The groups that no look is needed for: all boxes, and the owner's own lists."""
        groups = {name: list(self.boxes) for name in ("fleet", self.inventory.stem)}
        for box in self.boxes.values():
            for group in box.groups:
                if box.name not in groups.setdefault(group, []):
                    groups[group].append(box.name)
        return groups

    def unseen(self, names: Iterable[str]) -> list[str]:
        """Those of these boxes of which no facts are known."""
        return [name for name in names if name not in self.facts]

    def to_look_at(self, limit: Iterable[str], exclude: Iterable[str]) -> list[str]:
        """The boxes without facts that have to be looked at to tell what --limit and --exclude mean, and to group them.

        All of them when a trait is among the words, else those that are meant. Raises ConfigError when a word names no
        box, no group and no trait.
        """
        hand = self.by_hand()

        def told(words: Iterable[str]) -> list[str]:
            return [word for word in words if word in hand or not is_trait(word)]

        limits, excluded = list(limit), list(exclude)
        if told(limits) == limits and told(excluded) == excluded:
            return self.unseen(self.select(limits, excluded))
        for option, words in (("--limit", limits), ("--exclude", excluded)):
            for word in told(words):
                self._meant(word, option, hand)
        return self.unseen(self.boxes)

    def concerned(self, limit: Iterable[str], exclude: Iterable[str]) -> list[str]:
        """The boxes that --limit and --exclude mean as far as is known, and those to be looked at to tell."""
        limits, excluded = list(limit), list(exclude)
        new = self.to_look_at(limits, excluded)
        try:
            return list(dict.fromkeys([*self.select(limits, excluded), *new]))
        except ConfigError:  # of a trait that no box is known to have yet
            return new

    def select(self, limit: Iterable[str], exclude: Iterable[str]) -> list[str]:
        """The boxes that --limit and --exclude mean: names (with `*`), groups, traits as far as facts are known.

        Raises ConfigError when they leave none, or a word names nothing.
        """
        groups, limits = {**self._by_trait(), **self.by_hand()}, list(limit)
        chosen = {name for word in limits for name in self._meant(word, "--limit", groups)} or set(self.boxes)
        chosen -= {name for word in exclude for name in self._meant(word, "--exclude", groups)}
        if not chosen:
            raise ConfigError(["--limit and --exclude leave no box"])
        return [name for name in self.boxes if name in chosen]

    def _meant(self, word: str, option: str, groups: Mapping[str, list[str]]) -> list[str]:
        boxes = groups.get(word) or [name for name in self.boxes if fnmatch(name, word)]
        if not boxes:
            near = nearest(word, [*self.boxes, *groups])
            raise ConfigError([f"{option} {word!r} names no box and no group{near}"])
        return boxes
