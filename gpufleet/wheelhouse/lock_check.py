"""Whether a stack's locks are whole and current, without any download: `gpufleet stacks check`, and a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from gpufleet.errors import ConfigError
from gpufleet.stacks import Stack
from gpufleet.wheelhouse import lock
from gpufleet.wheelhouse.lock import Lock, Pin
from gpufleet.wheelhouse.lock_input import Input
from gpufleet.wheelhouse.lock_target import Target, targets
from gpufleet.wheelhouse.needs import unmet
from gpufleet.wheelhouse.tags import best, ranked

# Where a lock says what a page's `versions` say, and what torch needs whose version is that of its CUDA.
VERSIONS = {"torch": "torch", "flashinfer": "flashinfer-python", "tilelang": "tilelang"}
CUDA = {"cuda-toolkit", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"}


def problems(stack: Stack) -> list[str]:
    """A line for each thing that is wrong with the locks of a stack, naming the file and what to do."""
    found: list[str] = []
    for target in targets(stack):
        try:
            source = target.input()
        except ConfigError as error:
            found += error.problems
            continue
        for python in stack.python:
            where = f"locks/{target.path(python).name}"
            again = f"; make it with `gpufleet stacks lock {stack.name} --python {python}`"
            try:
                read = lock.read(target.path(python).read_text(encoding="utf-8"), where)
            except OSError as error:
                found.append(f"{where}: {error.strerror}{again}")
            except UnicodeDecodeError as error:
                found.append(f"{where}: is no text: {error}{again}")
            except ConfigError as error:
                found += error.problems
            else:
                found += [f"{where}: {line}{again}" for line in of_lock(target, source, python, read)]
    return found


def of_lock(target: Target, source: Input, python: str, read: Lock) -> Iterator[str]:
    """What is wrong with one lock: out of date, of another platform, not as the page says, not closed."""
    pins = lock.by_name(read.pins)
    if read.made_from != target.digest(source):
        yield f"is not made from the present {target.name}.in and stacks/{target.stack.name}.yaml"
    known = ranked(python, source.glibc)
    for pin in pins.values():
        if best([pin.filename], known) is None:
            yield f"{pin.filename} is no wheel for Python {python} with glibc 2.{source.glibc}"
    elsewhere = set(target.made) | target.sources
    for name in sorted(set(pins) & (elsewhere | source.drop)):
        why = "is made from what the page names" if name in elsewhere else "is dropped"
        yield f"{name} is locked, but {why}"
    yield from _of_page(target, pins)
    yield from _closed(target, source, read, python)


def _of_page(target: Target, pins: Mapping[str, Pin]) -> Iterator[str]:
    """Where the page's `versions` say otherwise than the lock."""
    versions = target.stack.versions
    for key, wanted in versions.model_dump(exclude_none=True).items() if versions else ():
        name = VERSIONS[key]
        if name not in pins and not target.whole:
            continue
        if name not in pins:
            yield f"has no {name}, but the page says versions.{key}: {wanted}"
        elif (locked := with_cuda(pins[name], pins)) != wanted:
            yield f"has {name} {locked}, but the page says versions.{key}: {wanted}"


def with_cuda(pin: Pin, pins: Mapping[str, Pin]) -> str:
    """`2.13.0+cu130` of a torch 2.13.0 that needs CUDA 13.0: an index's own build does not say so itself."""
    theirs = [
        pins[name] for need in pin.needs if (name := canonicalize_name(Requirement(need).name)) in CUDA & set(pins)
    ]
    if pin.name != "torch" or not theirs or Version(pin.version).local:
        return pin.version
    major, minor = Version(theirs[0].version).release[:2]
    return f"{pin.version}+cu{major}{minor}"


def _closed(target: Target, source: Input, read: Lock, python: str) -> Iterator[str]:
    """What is missing, and what nobody asks for."""
    pins = lock.by_name(read.pins)
    versions: dict[str, str] = {name: pin.version for name, pin in pins.items()}
    for name, version in target.made.items():
        versions[name] = version
        if name not in source.unread and read.repacked.get(name, ("",))[0] != version:
            yield f"does not say what {name} {version} needs"
    roots = [
        one
        for one in source.requirements
        if one.marker is None or one.marker.evaluate({"python_version": python, "python_full_version": f"{python}.0"})
    ]
    needs: dict[str, tuple[str, ...]] = {name: pin.needs for name, pin in pins.items()}
    needs |= {name: of for name, (_, of) in read.repacked.items()}
    asked = [(f"{target.name}.in", one) for one in roots]
    asked += [(name, Requirement(one)) for name, its in needs.items() for one in its]
    yield from unmet(asked, versions)
    reached: set[str] = set()
    left: list[str] = [canonicalize_name(one.name) for one in roots] + list(read.repacked)
    while left:
        if (one := left.pop()) not in reached:
            reached.add(one)
            left += [canonicalize_name(Requirement(its).name) for its in needs.get(one, ())]
    for superfluous in sorted(set(pins) - reached):
        yield f"has {superfluous}, which nothing asks for"
