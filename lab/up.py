"""`lab up`: everything built, the network there, and every box up; what is up already is left as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import apt, boxes, content, cuda, host, network, nvml, server, ssh, state
from lab.cache import locked
from lab.errors import LabError
from lab.paths import Settings, box_name

CPU_ONLY = "cpu-only"
PARALLEL = 8

Say = Callable[[str], None]


def up(settings: Settings, count: int, topologies: Sequence[str], say: Say) -> state.Lab:
    """Boxes lab-1 to lab-<count>; the i-th topology is the i-th box's, those without one have no GPU."""
    wanted = wanted_topologies(count, topologies)
    say("building what is not in the cache yet (the first time takes a minute or two)")
    built = content.build(settings)
    with locked(settings.home, "this lab"):
        host.allow_boxes(count)
        network.up(settings)
        ssh.identity(settings)
        lab = describe(settings, content.publish(settings, built), known(settings))
        lab.http["pid"] = server.start(settings)
        for name, topology in wanted.items():
            adopt(settings, lab, name, topology, explicit=bool(topologies))
        state.save(settings, lab)
        boot(settings, lab, list(wanted), built.base, say)
    return lab


def wanted_topologies(count: int, topologies: Sequence[str]) -> dict[str, str | None]:
    if count < 1:
        raise LabError(f"{count} boxes are none", "Ask for one or more, or end the lab: python -m lab down")
    if len(topologies) > count:
        raise LabError(f"{len(topologies)} topologies for {count} boxes", "Give at most one --topology for each box.")
    for topology in topologies:
        nvml.scenario(topology)
    padded = [*topologies, *[CPU_ONLY] * (count - len(topologies))]
    return {box_name(index): None if name == CPU_ONLY else name for index, name in enumerate(padded, 1)}


def known(settings: Settings) -> list[state.Box]:
    """The boxes on record; after a lost record, those with a disk (their topology is on it too)."""
    try:
        return state.load(settings).boxes
    except LabError:
        return boxes.on_disk(settings)


def describe(settings: Settings, model: dict[str, str], known_boxes: list[state.Box]) -> state.Lab:
    return state.Lab(
        bridge=settings.bridge,
        address=settings.address,
        network=str(settings.network),
        http={"port": settings.port, "pid": None},
        ssh_key=str(settings.ssh_key),
        known_hosts=str(settings.known_hosts),
        urls={
            "pypi": settings.url("simple/"),
            "debian": settings.url("debian/"),
            "cuda": settings.url("cuda/{distro}/x86_64/"),
            "cuda_key": settings.url(f"cuda/{cuda.DISTRO}/x86_64/{cuda.KEY}"),
            "models": settings.url("models/"),
        },
        cuda_key_fingerprint=apt.fingerprint(settings, "cuda"),
        model=model,
        boxes=known_boxes,
    )


def adopt(settings: Settings, lab: state.Lab, name: str, topology: str | None, *, explicit: bool) -> None:
    """Put a box on record; one that is there keeps its topology, and is not silently given another."""
    existing = next((box for box in lab.boxes if box.name == name), None)
    if existing is None:
        lab.boxes.append(state.Box(name=name, address=settings.box_address(name), topology=topology))
    elif explicit and existing.topology != topology:
        raise LabError(
            f"{name} is there with topology {existing.topology or CPU_ONLY}, not {topology or CPU_ONLY}",
            "Leave --topology out to keep the boxes as they are, or start anew: python -m lab down",
        )


def boot(settings: Settings, lab: state.Lab, names: Sequence[str], base: Path, say: Say) -> None:
    """Start those that are not up, some at a time; all that came up are on record even when one fails."""
    chosen = [lab.box(name) for name in names]
    with ThreadPoolExecutor(PARALLEL) as pool:
        for box in chosen:
            boxes.prepare(settings, box, base)
        ssh.know(settings, boxes.host_keys(settings))
        starts = [(box, pool.submit(boxes.start, settings, box)) for box in chosen]
        failures = []
        for box, start in starts:
            try:
                done = "started" if start.result() else "was up"
                say(f"{box.name}  {box.address}  {box.topology or CPU_ONLY}  {done}")
            except LabError as error:
                failures.append(error)
    state.save(settings, lab)
    if failures:
        raise failures[0]
