"""What the wheelhouse has to hold, as pip requirements: the hashed locks, and the stacks' `uv` and `wheels`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

from lab.base import PYTHON
from lab.errors import LabError

BOX = {
    "python_version": PYTHON, "python_full_version": f"{PYTHON}.2", "implementation_name": "cpython",
    "platform_python_implementation": "CPython", "platform_machine": "x86_64", "platform_system": "Linux",
    "sys_platform": "linux", "os_name": "posix",
}  # fmt: skip


@dataclass(frozen=True)
class Pin:
    """One exact version with the hashes of its files."""

    requirement: str
    hashes: tuple[str, ...]

    @property
    def local(self) -> bool:
        """Whether it is a build such as 2.13.0+cpu, which the Python index does not carry."""
        return "+" in self.requirement

    def line(self) -> str:
        return " ".join((self.requirement, *(f"--hash={value}" for value in self.hashes)))


def parse_lock(text: str, source: str) -> Iterator[Pin]:
    """The pins of a lock that apply to a box of the lab."""
    for line in text.replace("\\\n", " ").splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("-"):
            raise LabError(f"{source}: `{line}` cannot be in a lock for the lab", "Only hashed pins can.")
        specification, *hashes = line.split(" --hash=")
        requirement = Requirement(specification.split(" #")[0].strip())
        if not hashes:
            raise LabError(f"{source}: {requirement.name} has no --hash", "Make the lock again with hashes.")
        if requirement.marker is None or requirement.marker.evaluate(BOX):
            yield Pin(f"{requirement.name}{requirement.specifier}", tuple(value.split()[0] for value in hashes))


def stack_pins(stack: dict[str, Any]) -> Iterator[Pin]:
    wheels = list(stack.get("wheels") or [])
    if uv := stack.get("uv"):
        wheels.append({"name": "uv", **uv})
    for wheel in wheels:
        yield Pin(f"{wheel['name']}=={wheel['version']}", (f"sha256:{wheel['sha256']}",))


def wanted(files: Path) -> list[Pin]:
    """All pins of the stacks that can be installed on a box of the lab."""
    stacks = [yaml.safe_load(path.read_text()) for path in sorted((files / "stacks").glob("*.yaml"))]
    # a GPU stack would be gigabytes that no box of the lab can run
    usable = [stack for stack in stacks if PYTHON in stack.get("python", []) and "cpu" in stack.get("arch", [])]
    pins = [pin for stack in usable for pin in stack_pins(stack)]
    for name in sorted({stack["lock"] for stack in usable if stack.get("lock")}):
        lock = files / "locks" / f"{name}-py{PYTHON.replace('.', '')}.txt"
        pins += parse_lock(lock.read_text(), lock.name)
    return unique(pins)


def unique(pins: Iterable[Pin]) -> list[Pin]:
    return list(dict.fromkeys(pins))
