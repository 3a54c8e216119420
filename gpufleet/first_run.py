"""The screen before the first change of boxes that gpufleet has not changed yet: what would be done there. No I/O.

Boxes that would get the same are told together. Where that is still more than a screen, each kind has one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpufleet import room
from gpufleet.changes import Changes
from gpufleet.plan import BoxPlan
from gpufleet.rules import Finding
from gpufleet.toolkit import is_of_toolkit, version

HEIGHT = 40  # lines of a screen that are filled at most
NAMED = 4  # boxes of a kind that are named
LISTED = 30  # kinds that have a line, where there are many
MIB = 1 << 20


@dataclass(frozen=True)
class Subject:
    """A box of the run. + login: how it is logged in to, and becomes root"""

    plan: BoxPlan
    changes: Changes
    findings: Sequence[Finding]
    login: str


@dataclass(frozen=True)
class Disk:
    """+ what: the path, with the file system it is on; free: MiB, None where it is not known"""

    what: str
    need: int
    free: int | None


@dataclass(frozen=True)
class Kind:
    """Boxes that would get the same. + rows: (label, text); disks: each with the least that is free on one of them"""

    title: str
    boxes: list[str]
    rows: tuple[tuple[str, str], ...]
    disks: list[Disk]


def lines(subjects: Iterable[Subject], height: int = HEIGHT) -> list[str]:
    """What is told of the boxes, kind by kind."""
    found = kinds(subjects)
    full = [line for kind in found for line in ["", *_block(kind)]]
    return full if len(full) <= height else ["", *_short(found)]


def kinds(subjects: Iterable[Subject]) -> list[Kind]:
    """In the order of their first boxes."""
    found: dict[tuple[Any, ...], Kind] = {}
    for subject in subjects:
        title, told, disks = _title(subject.plan), tuple(rows(subject)), list(_disks(subject.plan))
        key = (title, told, tuple((disk.what, disk.need) for disk in disks))
        kind = found.setdefault(key, Kind(title, [], told, disks))
        kind.boxes.append(subject.plan.name)
        kind.disks[:] = [_less(one, other) for one, other in zip(kind.disks, disks, strict=True)]
    return list(found.values())


def rows(subject: Subject) -> Iterator[tuple[str, str]]:
    """(label, text) of what is known of a box before anything is done there, but for its disks."""
    plan, changes = subject.plan, subject.changes
    yield "login", subject.login
    if changes.packages:
        of_nvidia = " (and NVIDIA's apt repository)" if any(map(is_of_toolkit, changes.packages)) else ""
        yield "apt", " ".join(changes.packages) + of_nvidia
    yield from (("apt", line) for line in changes.apt)
    if changes.host:
        yield "sets", "; ".join(changes.host)
    yield from (("sets", line) for line in changes.of_models_home())
    for runtime in changes.runtimes:
        stack = runtime.stack
        with_toolkit = {item.cuda_toolkit for item in plan.instances if item.runtime == runtime and item.cuda_toolkit}
        words = [stack.name, *(f"CUDA toolkit {version(each)}" for each in sorted(with_toolkit))]
        if stack.from_source:
            words.append("built from source on one box, which takes hours")
        elif stack.compile:
            words.append("kernels compiled on the first box of a kind")
        yield "stack", f"{', '.join(words)}: {size(stack.disk_mib * MIB)}"
    brought = {model.name for model in changes.models}
    for change in changes.instances:
        instance = change.instance
        where = f"GPU {','.join(map(str, instance.gpus))}" if instance.gpus else "the CPU"
        model = instance.model
        if model.link:
            comes = f"its files are linked in {model.link}"
        else:
            comes = size(model.size_mib * MIB) if model.name in brought else "its files are there"
        name = model.name if instance.name == model.name else f"{model.name} as {instance.name}"
        yield "serves", f"{name} on {where}, port {instance.port}: {comes}"
    if units := replaced(changes):
        yield "instead", f"{', '.join(units)}: stopped, put back where the gate fails, else disabled"
    if warnings := dict.fromkeys(found.label for found in subject.findings if found.level == "warning"):
        yield "warns", ", ".join(warnings)


def replaced(changes: Changes) -> list[str]:
    """Units of the owner that instances take the place of."""
    return list(dict.fromkeys(unit for change in changes.instances for unit in change.replaces))


def size(count: float) -> str:
    """`1.4 GiB`, `812 MiB`"""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / MIB:.0f} MiB"


def names(boxes: Sequence[str]) -> str:
    """`a, b, c, d and 5 more`"""
    shown = boxes if len(boxes) <= NAMED + 1 else boxes[:NAMED]
    more = f" and {len(boxes) - len(shown)} more" if len(shown) < len(boxes) else ""
    return ", ".join(shown) + more


def _title(plan: BoxPlan) -> str:
    """`2 × NVIDIA GeForce RTX 2080 Ti (sm75 nvlink nv2 gpus2), ubuntu 24.04`"""
    cards = Counter(str(gpu.get("name") or "GPU") for gpu in plan.facts.get("gpus") or [])
    what = " and ".join(f"{count} × {name}" for name, count in cards.items()) or "no GPU"
    found = plan.facts.get("os") or {}
    system = f"{found.get('id') or 'unknown'} {found.get('version_id') or ''}".strip()
    return f"{what} ({' '.join(plan.traits)}), {system}"


def _disks(plan: BoxPlan) -> Iterator[Disk]:
    """Each place that something goes to; the spare room that rules ask for is not in it."""
    disks = plan.facts.get("disks") or {}
    for path, need in room.needs(plan).items():
        if need:
            disk = disks.get(path) or {}
            of = ", ".join(str(disk[key]) for key in ("mount", "filesystem") if disk.get(key))
            yield Disk(f"{path} ({of})" if of else path, need, room.free_mib(plan, path))


def _less(one: Disk, other: Disk) -> Disk:
    free = [disk.free for disk in (one, other) if disk.free is not None]
    return Disk(one.what, one.need, min(free, default=None))


def _space(disk: Disk) -> str:
    free = "an unknown room" if disk.free is None else f"{size(disk.free * MIB)} free"
    return f"{size(disk.need * MIB)} of {free}"


def _block(kind: Kind) -> Iterator[str]:
    count = f"{len(kind.boxes)} boxes: " if len(kind.boxes) > 1 else ""
    yield count + kind.title
    many = len(kind.boxes) > 1
    told = [("boxes" if many else "box", names(kind.boxes)), *kind.rows]
    at = next((number for number, (label, _) in enumerate(told) if label in ("instead", "warns")), len(told))
    told[at:at] = [
        ("disk", f"{disk.what}: {_space(disk)}{', the least of them' if many and disk.free is not None else ''}")
        for disk in kind.disks
    ]
    before = ""
    for label, text in told:
        yield f"  {label if label != before else '':<8}{text}"
        before = label


def _short(found: Sequence[Kind]) -> Iterator[str]:
    for kind in found[:LISTED]:
        told = [text for label, text in kind.rows if label in ("stack", "serves", "instead", "warns")]
        told += [f"{disk.what.split(' ')[0]}: {_space(disk)}" for disk in kind.disks]
        yield f"  {names(kind.boxes)}: {kind.title}: {'; '.join(told)}"
    if len(found) > LISTED:
        boxes = sum(len(kind.boxes) for kind in found[LISTED:])
        yield f"  and {boxes} more boxes of {len(found) - LISTED} other kinds: `gpufleet plan` has each"
