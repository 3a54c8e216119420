"""The catalogue of stacks: an engine with its versions, patches and pins, one YAML page each (`files/stacks`)."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from gpufleet.catalogue import Entry
from gpufleet.patches import read_series
from gpufleet.schema import Args, Data, Env, Name, OneLine, Package, Sha256, Url
from gpufleet.settings import Toolkit

# Part of every runtime's digest: raise it when what is done to a runtime changes without any of its inputs changing.
RECIPE = "1"
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$")]


class Uv(Data):
    """The uv that installs a runtime, pinned by the hash of its linux x86_64 wheel."""

    version: Version
    sha256: Sha256


class Wheel(Data):
    """A wheel that is patched and repacked before it is installed."""

    name: Name
    version: Version
    filename: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._+-]+\.whl$")]
    sha256: Sha256
    patches: Name | None = None  # a folder of files/patches
    rename: Name | None = None  # the distribution's name in the runtime
    drop_requires: list[Name] = []


class Stack(Entry):
    """One stack."""

    engine: Literal["vllm"]
    python: Annotated[list[Annotated[str, StringConstraints(pattern=r"^3\.\d+$")]], Field(min_length=1)]
    arch: Annotated[list[Annotated[str, StringConstraints(pattern=r"^(cpu|sm\d{2,3})$")]], Field(min_length=1)]
    cuda_toolkit: Toolkit | None = None
    apt: list[Package] = []
    uv: Uv
    torch_index: Url | None = None  # where torch's own builds are, beside the default index; mirrors.torch wins
    lock: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+\.txt$")]
    wheels: list[Wheel] = []
    verify: list[OneLine] = []
    env: Env = {}
    args: Args = {}
    disk_mib: Annotated[int, Field(ge=0)] = 0  # what installing it takes at most, measured

    @cached_property
    def files(self) -> Path:
        """The `files` folder this stack's lock and patches are in."""
        return self.path.parent.parent

    @property
    def lock_text(self) -> str:
        return (self.files / "locks" / self.lock).read_text(encoding="utf-8")

    @cached_property
    def runtime(self) -> str:
        """The name of the runtime it makes, `<stack>-<digest>`: of everything that goes into it."""
        digest = hashlib.sha256(RECIPE.encode())
        digest.update(self.model_dump_json(include={"python", "uv", "wheels", "verify"}).encode())
        digest.update(self.lock_text.encode())
        for wheel in self.wheels:
            if wheel.patches:
                digest.update(read_series(self.files / "patches" / wheel.patches).digest.encode())
        return f"{self.name}-{digest.hexdigest()[:12]}"
