"""The locks of a stack: those of its runtimes, and that of the environment it is built in from source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpufleet.errors import ConfigError
from gpufleet.parts import Wheel
from gpufleet.stacks import Stack
from gpufleet.wheelhouse.lock_input import Input, parse


@dataclass(frozen=True)
class Target:
    """One lock: `files/locks/<name>.in`, and a .txt for each Python of the stack.

    + made: wheels that the controller or a builder makes, by name with their version: in the runtime, not in the lock
    + wheels: those of them that are published wheels, repacked
    + sources: names of the sources, which ask for nothing
    + whole: whether it is the runtime's, with all that the page's `versions` name
    """

    stack: Stack
    name: str
    made: dict[str, str]
    wheels: tuple[Wheel, ...] = ()
    sources: frozenset[str] = frozenset()
    whole: bool = True

    @property
    def input_path(self) -> Path:
        return self.stack.files / "locks" / f"{self.name}.in"

    def path(self, python: str) -> Path:
        return self.stack.files / "locks" / f"{self.name}-py{python.replace('.', '')}.txt"

    def input(self) -> Input:
        """What it is made from. Raises ConfigError when it is not there, wrong, or does not go with the page."""
        where = f"locks/{self.input_path.name}"
        try:
            found = parse(self.input_path.read_text(encoding="utf-8"), where)
        except OSError as error:
            raise ConfigError([f"{where}: {error.strerror}; a lock is made from it"]) from None
        except UnicodeDecodeError as error:
            raise ConfigError([f"{where}: is no text: {error}; save it as UTF-8"]) from None
        if (said := found.repacked | found.unread) != set(self.made):
            theirs, ours = (", ".join(sorted(names)) or "none" for names in (said, self.made))
            raise ConfigError(
                [
                    f"{where}: repacked or unread are {theirs}, but stacks/{self.stack.name}.yaml makes {ours}; "
                    "make them the same"
                ]
            )
        return found

    def remaining(self, name: str, requirements: Iterable[Requirement]) -> list[Requirement]:
        """What a package asks for when it is repacked as the page says; of one that is not, all."""
        wheel = next((wheel for wheel in self.wheels if canonicalize_name(wheel.name) == name), None)
        if wheel is None:
            return list(requirements)
        fates: dict[str, list[Requirement]] = {canonicalize_name(its): [] for its in wheel.drop_requires}
        fates |= {canonicalize_name(one.name): [one] for one in map(Requirement, wheel.replace_requires)}
        return [kept for one in requirements for kept in fates.get(canonicalize_name(one.name), [one])]

    def digest(self, found: Input) -> str:
        """Of all that it is made from but the index: with another one, it is out of date."""
        wheels = sorted((it.name, sorted(it.drop_requires), sorted(it.replace_requires)) for it in self.wheels)
        parts = [found.platform, found.exclude_newer, *sorted(map(str, found.requirements))]
        sets = [sorted(found.repacked), sorted(found.unread), sorted(found.drop)]
        lists = [sorted(found.override), sorted(found.constrain), *([sorted(found.newer)] if found.newer else [])]
        content = repr((parts, sets, lists, sorted(self.made.items()), [it for it in wheels if any(it[1:])]))
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def targets(stack: Stack) -> list[Target]:
    """All locks of a stack: its own, those of its options, that of what it is built with; those that it has."""
    made: dict[str, str] = {canonicalize_name(wheel.name): wheel.version for wheel in stack.wheels}
    made |= {canonicalize_name(stack.build.name): stack.build.version} if stack.build else {}
    sources = frozenset(canonicalize_name(source.name) for source in stack.sources)
    names = [stack.lock, *(option.lock for option in stack.options.values())]
    found = [Target(stack, name, made, tuple(stack.wheels), sources) for name in names if name]
    return [*found, Target(stack, stack.build.lock, {}, whole=False)] if stack.build else found
