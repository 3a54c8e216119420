"""The catalogue of stacks: an engine with its versions, patches and pins, one YAML page each (`files/stacks`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpufleet import engines
from gpufleet.catalogue import Entry
from gpufleet.errors import ConfigError, nearest
from gpufleet.log_lines import Log
from gpufleet.parts import Build, Check, Compile, Source, Uv, Version, Wheel
from gpufleet.paths import product_files
from gpufleet.recipe import Arch, ByTrait, Engine, Trait
from gpufleet.schema import Args, Data, Env, Flag, Name, OneLine, Package, Url, Variable, worded
from gpufleet.settings import Toolkit

# What an engine can do that the upstream one of its version cannot, or not on these cards; rules ask for it by name.
Provided = Literal[
    "fp8-kv-sm75",  # FlashInfer attention on 7.5, the one way to an FP8 KV cache there
    "flashqla",  # gdn_prefill_backend: flashqla_legacy is more than a word that is taken and ignored
    "mtp-bf16-draft",  # VLLM_QWOPUS_MTP_BF16_DRAFT: an unquantised draft beside quantised weights
    "mtp-bf16-fc",  # the same variable, for the draft's fc only: its decoder layer stays quantised
    "spec-sync-mode",  # VLLM_SM75_SPEC_SYNC_MODE
    "thinking-budget",  # default_thinking_token_budget in reasoning-config
    "fp8-kv-sm70",  # fp8_e5m2 on 7.0
]
Python = Annotated[str, worded(r"^3\.[0-9]{1,2}$", 'a version of Python such as "3.11", in quotes')]


def text_of(lock: Path) -> str:
    """The text of a lock. Raises OSError, or ConfigError when it is no text."""
    try:
        return lock.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError([f"locks/{lock.name}: is no text: {error}; make it with `gpufleet stacks lock`"]) from None


class Versions(Data):
    """What a runtime of it holds, as `pip list` would say: for rules and for reading. The lock is what counts."""

    torch: Version
    flashinfer: Version | None = None
    tilelang: Version | None = None


class Option(Data):
    """Something of a stack that is off until an owner's `options` name it.

    + lock: in place of the stack's: the same packages, and those it brings
    + not_with: options that cannot be chosen beside it
    + hybrid: whether models with layers that keep a state (linear attention, Mamba) can be served with it
    """

    title: OneLine
    lock: Name | None = None
    args: Args = {}
    env: Env = {}
    not_with: list[Name] = []
    hybrid: bool = True


class Stack(Entry):
    """One stack. Without `lock` it can be planned, not installed."""

    engine: Engine
    flags: Name | None = None  # a table of files/engines: the flags this engine knows
    more_flags: list[Flag] = []  # flags of a fork that its table lacks
    more_env: list[Variable] = []
    default_for: list[Arch] = []  # taken for such cards when no setting names a stack
    versions: Versions | None = None
    provides: list[Provided] = []
    device_ids: bool = False  # give --device-ids, indexes within CUDA_VISIBLE_DEVICES
    python: Annotated[list[Python], Field(min_length=1)]  # with a lock for each
    arch: Annotated[list[Arch], Field(min_length=1)]
    cuda_toolkit: Toolkit | None = None
    apt: list[Package] = []
    uv: Uv | None = None  # with `lock`
    torch_index: Url | None = None  # where torch's own builds are, beside the default index; mirrors.torch wins
    lock: Name | None = None  # files/locks/<lock>-py311.txt, one for each of `python`
    wheels: list[Wheel] = []
    sources: list[Source] = []
    compile: list[Compile] = []
    from_source: bool = False  # with `build`: says on its first lines that this stack takes hours on one box
    build: Build | None = None
    verify: list[Check] = []
    env: Env = {}  # a value may hold {cores}: the box's physical cores
    args: Args = {}
    by_trait: dict[Trait, ByTrait] = {}
    options: dict[Name, Option] = {}
    log: Log = Log()  # what the engine's log must say; no part of a runtime or a release
    chosen: tuple[Name, ...] = Field(default=(), exclude=True)  # of `options`, see `with_options`
    disk_mib: Annotated[int, Field(ge=0)] = 0  # what installing it takes at most, measured

    @model_validator(mode="after")
    def _whole(self) -> Stack:
        if (self.lock is None) != (self.uv is None):
            raise ValueError("`lock` and `uv` go together: both, or neither for a stack that is only planned with")
        for name, option in self.options.items():
            if option.lock and not self.lock:
                raise ValueError(f"options.{name} has a lock, but the stack has none")
            if unknown := [other for other in option.not_with if other not in self.options]:
                raise ValueError(f"options.{name}.not_with names {', '.join(unknown)}, which is no option of it")
        if self.from_source != (self.build is not None):
            raise ValueError("`from_source: true` and `build` go together: both, or neither")
        if self.build and self.build.name in {wheel.name for wheel in self.wheels}:
            raise ValueError(f"{self.build.name} is both in `wheels` and built; keep one")
        return self

    def with_options(self, names: Sequence[str], where: str) -> Stack:
        """The stack with these of its options. Raises ConfigError for one it does not have, and for two that exclude
        each other or that both have packages of their own."""
        locks = {name: self.options[name].lock for name in names if name in self.options and self.options[name].lock}
        for name in names:
            if name not in self.options:
                raise ConfigError([f"{where}: stack {self.name} has no option {name!r}{nearest(name, self.options)}"])
            if beside := [other for other in names if other in self.options[name].not_with]:
                raise ConfigError([f"{where}: options {name} and {', '.join(beside)} exclude each other; keep one"])
        if len(locks) > 1:
            raise ConfigError([f"{where}: options {' and '.join(locks)} each have packages of their own; keep one"])
        changes = {"chosen": tuple(names), "lock": next(iter(locks.values()), self.lock)}
        return self.model_copy(update=changes) if names else self

    @cached_property
    def table(self) -> engines.Engine | None:
        """What its engine knows; None when the page names no table. Raises ConfigError for one that is not there."""
        if self.flags is None:
            return None
        folder = self.files / "engines"
        own = () if folder == product_files() / "engines" else (folder,)
        return engines.load(self.flags, self.more_flags, self.more_env, own)

    @property
    def installable(self) -> bool:
        """Whether a runtime can be made of it."""
        return self.lock is not None

    @cached_property
    def files(self) -> Path:
        """The `files` folder this stack's lock and patches are in."""
        return self.path.parent.parent

    def lock_path(self, python: str) -> Path:
        """The lock for a Python minor version, `3.11`."""
        return self.files / "locks" / f"{self.lock}-py{python.replace('.', '')}.txt"

    def lock_text(self, python: str) -> str:
        """The lock's text, empty without one. Raises OSError, or ConfigError when it is no text."""
        return text_of(self.lock_path(python)) if self.lock else ""

    def build_lock_path(self, python: str) -> Path | None:
        """The lock of what `build` is built with; None for a stack that builds nothing."""
        short = python.replace(".", "")
        return self.files / "locks" / f"{self.build.lock}-py{short}.txt" if self.build else None

    def python_for(self, found: str | None) -> str:
        """The Python minor it is installed with where `python3` is `found`, `3.11.2`; of another one the rules say
        that it does not do."""
        short = ".".join((found or "").split(".")[:2])
        return short if short in self.python else self.python[0]
