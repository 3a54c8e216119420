"""Which boxes can serve a model, at what length and for how many requests, and what to change where one cannot. No I/O.

A box is asked by its own plan, as if it served nothing else: its layers, its stacks, its recipe by trait, and what the
rules say. What a change would do is planned as well before it is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpufleet.catalogue import Catalogue
from gpufleet.dialect import DIALECTS
from gpufleet.errors import ConfigError
from gpufleet.fit import memory_of
from gpufleet.fit_changes import Change, changes, laid, most
from gpufleet.flags import compute_captures
from gpufleet.instance import Instance
from gpufleet.layers import Layer
from gpufleet.memory import Memory
from gpufleet.models import Model
from gpufleet.plan import Box, BoxPlan, plan_box
from gpufleet.planning import OPTION, Planned, checked_plan
from gpufleet.provenance import Values
from gpufleet.stacks import Stack
from gpufleet.traits import traits_of
from gpufleet.view import View

MOST_REQUESTS = 1024
SIZES = "compilation-config.cudagraph_capture_sizes"
# What the estimate itself says, in the words of rules; a box that has no other error is told in figures.
OF_MEMORY = ("GF401", "GF408")


@dataclass(frozen=True)
class Subject:
    """A box to be asked, with all that was written for it."""

    box: Box
    facts: Mapping[str, Any]
    layers: Mapping[str, Sequence[Layer]]
    stacks: Catalogue[Stack]
    models: Catalogue[Model]


@dataclass(frozen=True)
class Room:
    """One way in which a box would serve the model: like instances on like cards.

    + cards: the name and memory of one card; + gpus: indexes of each instance
    + fits: whether one request of the full length can be served, and the engine starts; None: not known, on CPUs
    + longest: tokens of the longest request when only one is served at once; + longest_each: of each of `streams`
    + most: requests of the full length at once
    + left_mib: of each card's KV, what `streams` requests of the full length leave
    """

    stack: str
    link: str | None
    cards: str
    gpus: tuple[tuple[int, ...], ...]
    size: int
    fits: bool | None
    max_model_len: int
    streams: int
    longest: int
    longest_each: int
    most: int
    left_mib: int
    memory: Memory | None


@dataclass(frozen=True)
class Answer:
    """What there is to say of a box.

    + can: whether it can serve the model; None when nothing is known of its memory
    + why: what keeps it from it, a text each; + changes: what would help, the first is the plainest
    + idle: GPUs that no instance has
    """

    box: str
    can: bool | None
    rooms: list[Room]
    why: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)


def answer(subject: Subject, model: Model, given: Mapping[str, Any]) -> Answer:
    """Ask one box. `given` are settings of the command line. Raises ConfigError."""
    planned = _planned(subject, model, given)
    rooms = list(_rooms(planned.plan))
    why = list(_why(planned))
    known = [room.fits for room in rooms if room.fits is not None]
    can = None if not known and not why else any(known) and not why
    found: list[Change] = []
    if can is False:
        stuck = next((one for one in planned.plan.instances if one.memory and not _fits(one)), None)
        if stuck is not None:
            found = list(changes(stuck, subject.facts, lambda change: _after(subject, model, given, change)))
    return Answer(subject.box.name, can, rooms, why, found, planned.plan.idle_gpus)


def _planned(subject: Subject, model: Model, given: Mapping[str, Any]) -> Planned:
    """The box's plan with this model alone, by the entry that it has for it, if there is one."""
    view = View(subject.box, subject.layers, Layer(OPTION, {key: given[key] for key in given if key != "serve"}))
    entries = view.settings(traits_of(subject.facts)).settings.serve
    own = [each for each in entries if not isinstance(each, str) and each.model == model.name]
    entry = own[0].model_dump(exclude_unset=True) if own else model.name
    overrides = {**given, "serve": [entry]}
    layers, stacks, models = subject.layers, subject.stacks, subject.models
    return checked_plan(plan_box(subject.box, subject.facts, layers, stacks, models, overrides, given_by=OPTION))


def _after(subject: Subject, model: Model, given: Mapping[str, Any], change: Mapping[str, Any]) -> Memory | None:
    """Memory of the instance with the most room after a change; None when there is none, or a rule refuses it."""
    try:
        planned = _planned(subject, model, laid(given, change))
    except ConfigError:  # the change does not go with what else was set
        return None
    if any(found.level == "error" and found.code not in OF_MEMORY for found in planned.findings):
        return None
    known = [one.memory for one in planned.plan.instances if one.memory is not None]
    return max(known, key=lambda memory: (memory.fits, memory.longest_len), default=None)


def _why(planned: Planned) -> Iterator[str]:
    for entry in planned.plan.unplaced:
        yield f"{entry.reason}; {entry.remedy}"
    for found in planned.findings:
        if found.level == "error":
            remedy = "" if found.code in OF_MEMORY else f"; {found.remedy}"  # that of memory is in the changes
            yield f"{found.label}: {found.message}{remedy}"


def _fits(instance: Instance) -> bool:
    return instance.memory is not None and instance.memory.fits and len(instance.gpus) >= instance.size


def _rooms(plan: BoxPlan) -> Iterator[Room]:
    """Instances that are alike are told once."""
    groups: dict[tuple[Any, ...], list[Instance]] = {}
    for one in plan.instances:
        key = (one.stack.name, one.link, one.size, one.sizes, one.memory)
        groups.setdefault(key, []).append(one)
    gpus = {gpu["index"]: gpu for gpu in plan.facts.get("gpus") or []}
    for alike in groups.values():
        yield _room(alike, gpus)


def _room(alike: Sequence[Instance], gpus: Mapping[int, Mapping[str, Any]]) -> Room:
    one = alike[0]
    cards = [gpus[index] for index in one.gpus]
    memory, streams = one.memory, one.streams or 1
    limit = one.model.architecture.max_positions if one.model.architecture else 0
    flag = DIALECTS[one.stack.engine].max_model_len

    def at(length: int, requests: int) -> bool:
        found = memory_of(one.model, one.stack, cards, with_requests(one, requests) | {flag: length})
        return found is not None and found.starts and found.concurrency >= requests

    known = memory is not None and memory.starts and len(one.gpus) >= one.size
    full = memory.max_model_len if memory else 0
    used = min(1.0, streams / memory.concurrency) if memory and memory.concurrency else 1.0
    return Room(
        stack=one.stack.name,
        link=one.link,
        cards=f"{cards[0].get('name') or 'GPU'}, {cards[0].get('memory_mib')} MiB" if cards else "CPU",
        gpus=tuple(each.gpus for each in alike),
        size=one.size,
        fits=_fits(one) if memory else None,
        max_model_len=full,
        streams=streams,
        longest=most(lambda length: at(length, 1), limit) if known else 0,
        longest_each=most(lambda length: at(length, streams), limit) if known else 0,
        most=most(lambda requests: at(full, requests), MOST_REQUESTS) if known else 0,
        left_mib=int(memory.kv_mib * (1 - used)) if memory else 0,
        memory=memory,
    )


def with_requests(instance: Instance, requests: int) -> dict[str, Any]:
    """An instance's flags for so many requests at once, its graphs captured for them where the plan chose the sizes."""
    dialect = DIALECTS[instance.stack.engine]
    values = Values()
    values.lay("plan", instance.args)
    values.lay("asked", {dialect.max_num_seqs: requests})
    if (instance.flags.source(SIZES) or "").startswith("computed") and dialect.compilation:
        config = dict(instance.args.get(dialect.compilation) or {})
        config.pop("cudagraph_capture_sizes", None)
        config.pop("max_cudagraph_capture_size", None)
        values.values[dialect.compilation] = config
        compute_captures(values, dialect, requests)
    return values.values
