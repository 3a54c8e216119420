"""A runtime: a stack as it is installed on a box, one directory named by the content of all that goes into it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gpufleet.building import Building
from gpufleet.parts import Patched
from gpufleet.patches import read_series
from gpufleet.paths import ROOT
from gpufleet.stacks import Stack

# Part of every digest: raise it when what is done to a runtime changes without any of its inputs changing.
RECIPE = "2"
PARTS = {"uv", "wheels", "sources", "compile", "verify"}  # of a stack's page; their sizes are for reading


@dataclass(frozen=True)
class Runtime:
    """A stack for one Python; where something is compiled also for one toolkit, and for the box's architectures.

    + python: minor version, `3.11`
    + toolkit: `13-0`, None when nothing is compiled
    + archs: `sm75`, what it is compiled for
    """

    stack: Stack
    python: str
    toolkit: str | None = None
    archs: tuple[str, ...] = ()

    @cached_property
    def name(self) -> str:
        """`<stack>-<digest>`. Raises OSError or PatchError when a lock, patch or script is not there."""
        stack = self.stack
        digest = hashlib.sha256(repr((RECIPE, self.python, self.toolkit, self.archs)).encode())
        parts = stack.model_dump_json(include=PARTS, exclude={"uv": {"size"}, "wheels": {"__all__": {"size"}}})
        digest.update(parts.encode())
        digest.update(stack.lock_text(self.python).encode())
        patched: list[Patched] = [*stack.wheels, *stack.sources]
        for part in patched:
            if part.patches:
                digest.update(read_series(stack.files / "patches" / part.patches).digest.encode())
        for step in stack.compile:
            digest.update(script_path(stack, step.script).read_bytes())
        if self.building:
            digest.update(self.building.name.encode())
        return f"{stack.name}-{digest.hexdigest()[:12]}"

    @cached_property
    def building(self) -> Building | None:
        """What of it is built from source, on one box for all like it; None where nothing is."""
        build = self.stack.build
        return Building(self.stack, build, self.python, self.toolkit, self.archs) if build else None

    @property
    def path(self) -> str:
        """Where it is on a box."""
        return f"{ROOT}/runtimes/{self.name}"


def script_path(stack: Stack, script: str) -> Path:
    return stack.files / "compile" / script


def runtime_of(stack: Stack, facts: Mapping[str, Any], toolkit: str | None) -> Runtime:
    """The runtime of a stack on a box: by its Python, and by its cards where something is compiled for them."""
    python = stack.python_for((facts.get("python") or {}).get("version"))
    if not stack.compile and not stack.build:
        return Runtime(stack, python)
    return Runtime(stack, python, toolkit, archs_of(facts.get("gpus") or [], stack))


def archs_of(cards: Iterable[Mapping[str, Any]], stack: Stack) -> tuple[str, ...]:
    """The architectures of these cards that a stack is for."""
    found = {"sm{}{}".format(*card["compute_capability"]) for card in cards}
    return tuple(sorted(found & set(stack.arch)))
