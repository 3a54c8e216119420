"""What a runtime needs as files: each with its hash, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from gpufleet.errors import ConfigError
from gpufleet.parts import Build, Source, Uv, Wheel
from gpufleet.runtime import Runtime
from gpufleet.stacks import Stack
from gpufleet.wheelhouse import lock
from gpufleet.wheelhouse.needs import unmet

# The name of uv's linux x86_64 wheel; the same for all releases from 0.1 on. The hash is what is pinned.
UV_WHEEL = "uv-{}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"


class FetchError(Exception):
    """A file that cannot be had: which, why, and what to do."""


@dataclass(frozen=True)
class FromIndex:
    """A wheel of a package index.

    + beside: a further index of the stack, asked first for local versions (`2.13.0+cpu`), else after the default one
    """

    name: str
    version: str
    beside: str | None = None

    @property
    def beside_first(self) -> bool:
        return Version(self.version).local is not None


@dataclass(frozen=True)
class FromUrl:
    url: str


@dataclass(frozen=True)
class FromHub:
    """A file of a models' hub. + repo: `owner/name`; commit: 40 hex digits; path: of the file in it"""

    repo: str
    commit: str
    path: str


@dataclass(frozen=True)
class Made:
    """Made on the controller: a repacked wheel, a source's wheel."""


@dataclass(frozen=True)
class Item:
    """One file. + size: bytes; None until it is known"""

    filename: str
    sha256: str
    size: int | None
    origin: FromIndex | FromUrl | FromHub | Made


def locked_items(runtime: Runtime) -> list[Item]:
    """The wheels of a runtime's lock, and the uv that installs them.

    Raises ConfigError for a lock that cannot be read, OSError for one that is not there.
    """
    stack = runtime.stack
    if stack.uv is None:
        raise FetchError(f"{stack.name} has no lock, so there is nothing to fetch. Set another stack.")
    path = stack.lock_path(runtime.python)
    pins = whole(stack.lock_text(runtime.python), f"files/locks/{path.name}", _made(stack))
    return [
        uv_item(stack.uv),
        *(
            Item(pin.filename, pin.sha256, pin.size, FromIndex(pin.name, pin.version, stack.torch_index))
            for pin in pins
        ),
    ]


def whole(text: str, where: str, made: Mapping[str, str]) -> list[lock.Pin]:
    """The pins of a lock that is all there. Raises ConfigError, also for one that was cut off, which reads like a whole
    one that is shorter: what its packages ask for is not in it.

    + made: versions of what is in the runtime and in no lock, by normalised name
    """
    read = lock.read(text, where)
    pins = lock.by_name(read.pins)
    needs = {name: of for name, (_, of) in read.repacked.items()} | {name: pin.needs for name, pin in pins.items()}
    asked = [(name, Requirement(need)) for name, its in needs.items() for need in its]
    lacking = list(unmet(asked, {**made, **{name: pin.version for name, pin in pins.items()}}))
    if not pins and not read.repacked:
        lacking = ["it is empty"]
    if lacking:
        more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
        raise ConfigError([f"{where}: {lacking[0]}{more}, so it was cut off or edited; {lock.MADE}"])
    return read.pins


def _made(stack: Stack) -> dict[str, str]:
    parts: list[Wheel | Source | Build] = [*stack.wheels, *stack.sources, *([stack.build] if stack.build else [])]
    names = {part.name: part.version for part in parts}
    names |= {wheel.rename: wheel.version for wheel in stack.wheels if wheel.rename}
    return {canonicalize_name(name): version for name, version in names.items()}


def uv_item(uv: Uv) -> Item:
    return Item(UV_WHEEL.format(uv.version), uv.sha256, None, FromIndex("uv", uv.version))


def stock_item(wheel: Wheel, torch_index: str | None) -> Item:
    """A wheel that is repacked, as published."""
    origin = FromUrl(wheel.url) if wheel.url else FromIndex(wheel.name, wheel.version, torch_index)
    return Item(wheel.filename, wheel.sha256, None, origin)


def archive_item(build: Build) -> Item:
    """The source archive of a build, as published."""
    origin = FromUrl(build.url) if build.url else FromIndex(build.name, build.version)
    return Item(build.filename, build.sha256, None, origin)


def once(items: Iterable[Item]) -> list[Item]:
    """Each file once, in order."""
    return list({item.sha256: item for item in items}.values())
