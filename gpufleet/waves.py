"""The order in which boxes are switched: canaries first, then batches, never too many of one model at once. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpufleet.changes import Changes
from gpufleet.errors import ConfigError
from gpufleet.plan import BoxPlan, Instance
from gpufleet.settings import Rollout
from gpufleet.traits import is_arch, is_link

# What concerns the whole run and not one box of it.
OF_THE_RUN = ("canary", "batch", "max_unavailable", "on_failure")
SHOWN = 4  # names of a wave's boxes in its title


@dataclass(frozen=True)
class Candidate:
    """A box that is to be switched.

    + kind: what it is, in words; boxes of one kind are expected to fail alike
    + down: served names that do not answer on it meanwhile; none when nothing of it serves yet
    """

    name: str
    kind: str
    down: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Wave:
    """Boxes that are switched at once, and why these: `canary of sm75 …`, `25 %`."""

    number: int
    of: int
    boxes: tuple[str, ...]
    reason: str
    canary: bool = False

    @property
    def title(self) -> str:
        """`Wave 2 of 5: box-3, box-4 (25 %)`"""
        more = f" and {len(self.boxes) - SHOWN} more" if len(self.boxes) > SHOWN + 1 else ""
        names = ", ".join(self.boxes[:SHOWN] if more else self.boxes)
        return f"Wave {self.number} of {self.of}: {names}{more} ({self.reason})"


@dataclass(frozen=True)
class Order:
    """All waves of a run. `limits`: how many boxes may be down at once, by served name."""

    waves: list[Wave] = field(default_factory=list)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)

    def now(self, wave: Wave, gone: Collection[str], done: Collection[str]) -> list[str]:
        """The boxes of a wave when its turn comes, of which some are `gone` (failed before) or `done`.

        For a canary that is gone the next box of its kind stands in, so that no kind goes without one. Raises
        NoCanary when there are others of its kind, and none may be down beside the wave's other boxes.
        """
        out = {*gone, *done}
        here = [name for name in wave.boxes if name not in out]
        if not wave.canary:
            return here
        for lost in (name for name in wave.boxes if name in gone):
            kind = self.candidates[lost].kind
            like = [name for name, other in self.candidates.items() if other.kind == kind and name not in out]
            fitting = [name for name in like if not over({*here, name}, self)]
            if like and not fitting:
                raise NoCanary(lost, kind)
            here += fitting[:1]
        return here


class NoCanary(Exception):
    """The canary of a kind failed before its turn, and no other box can stand in for it."""

    def __init__(self, box: str, kind: str) -> None:
        super().__init__(f"{box} failed before its turn, and no other box of its kind ({kind}) may be down now")
        self.box = box


def order(candidates: Iterable[Candidate], serving: Mapping[str, int], rollout: Rollout) -> Order:
    """The waves of a run.

    1. One canary of each kind, the first in order, together as far as the limits allow.
    2. All boxes that do not serve yet: switching them costs nobody anything.
    3. The others in order, `rollout.batch` of them at a time or fewer.
    No wave has more than `rollout.max_unavailable` boxes down that serve one model, at least one.
    + candidates: in the inventory's order
    + serving: the number of boxes that serve a model now, by served name
    """
    known = {candidate.name: candidate for candidate in candidates}
    models = {model for candidate in known.values() for model in candidate.down}
    limits = {model: share(rollout.max_unavailable, serving.get(model, 1)) for model in models}
    empty = Order([], known, limits)
    first: dict[str, str] = {}
    for candidate in known.values() if rollout.canary else ():
        first.setdefault(candidate.kind, candidate.name)
    rest = [candidate for candidate in known.values() if candidate.name not in first.values()]
    down = [candidate.name for candidate in known.values() if candidate.down]
    size = share(rollout.batch, len(down))
    fresh = tuple(candidate.name for candidate in rest if not candidate.down)
    batches = _batches([candidate.name for candidate in rest if candidate.down], size, empty)
    words = f"{rollout.batch[:-1]} %" if isinstance(rollout.batch, str) else f"{rollout.batch} at a time"
    parts: list[tuple[tuple[str, ...], str, bool]] = [
        (boxes, _canaries(boxes, empty), True) for boxes in _batches(first.values(), len(first) or 1, empty)
    ]
    parts += [(fresh, "not serving yet", False)] if fresh else []
    for index, boxes in enumerate(batches):
        # one that is not full and not the last ended because of the next box
        more = batches[index + 1][0] if len(boxes) < size and index + 1 < len(batches) else None
        parts.append((boxes, _limit([*boxes, more], empty) if more else words, False))
    waves = [Wave(number, len(parts), boxes, reason, canary) for number, (boxes, reason, canary) in enumerate(parts, 1)]
    return Order(waves, known, limits)


def share(given: str | int, total: int) -> int:
    """`"25%"` of a number of boxes, rounded down, or a count; at least 1."""
    return max(1, total * int(given[:-1]) // 100 if isinstance(given, str) else given)


def over(boxes: Iterable[str], known: Order) -> list[str]:
    """Served names of which too many boxes would be down, if all these were."""
    down = [model for name in boxes for model in known.candidates[name].down]
    return sorted({model for model in down if down.count(model) > known.limits[model]})


def _batches(names: Iterable[str], size: int, known: Order) -> list[tuple[str, ...]]:
    """Cut in order: a batch ends when it is full, or when the next box would be too many of a model."""
    batches: list[list[str]] = []
    for name in names:
        if batches and len(batches[-1]) < size and not over([*batches[-1], name], known):
            batches[-1].append(name)
        else:
            batches.append([name])
    return [tuple(batch) for batch in batches]


def _canaries(boxes: Sequence[str], known: Order) -> str:
    kinds = [known.candidates[name].kind for name in boxes]
    return f"canary of {kinds[0]}" if len(kinds) == 1 else f"canaries of {len(kinds)} kinds"


def _limit(boxes: Sequence[str], known: Order) -> str:
    """Why a batch has not the last of these boxes: the model of which no more may be down."""
    model = over(boxes, known)[0]
    return f"at most {known.limits[model]} of {model} at once"


def candidates(boxes: Mapping[str, tuple[BoxPlan, Changes]]) -> list[Candidate]:
    """The boxes of which an instance is to be switched or retired, in the order given."""
    return [
        Candidate(name, kind(plan), down(plan, changes))
        for name, (plan, changes) in boxes.items()
        if changes.instances or changes.leaving
    ]


def kind(plan: BoxPlan) -> str:
    """`sm75 nvlink nv2, vllm-0.27.1-sm75`: its architectures and links, and the stacks it serves with."""
    traits = [trait for trait in plan.traits if is_arch(trait) or is_link(trait)]
    return ", ".join([" ".join(traits), *sorted(stack.name for stack in plan.stacks)])


def down(plan: BoxPlan, changes: Changes) -> frozenset[str]:
    """The served names that the box stops answering to while it is switched; of what leaves, the instance's name."""
    serves = {name for name in plan.facts.get("instances") or {} if is_serving(plan.facts, name)}
    changed = {served_name(change.instance) for change in changes.instances if change.instance.name in serves}
    return frozenset(changed | {name for name in changes.leaving if name in serves})


def serving(plans: Iterable[BoxPlan]) -> dict[str, int]:
    """How many of these boxes serve a model now, by served name."""
    count: dict[str, int] = {}
    for plan in plans:
        planned = {instance.name: served_name(instance) for instance in plan.instances}
        now = {planned.get(name, name) for name in plan.facts.get("instances") or {} if is_serving(plan.facts, name)}
        for model in now:
            count[model] = count.get(model, 0) + 1
    return count


def is_serving(facts: Mapping[str, Any], name: str) -> bool:
    found = (facts.get("instances") or {}).get(name) or {}
    return bool(found.get("current") and (found.get("service") or {}).get("active") == "active")


def served_name(instance: Instance) -> str:
    """What its clients ask for."""
    name = instance.args.get("served-model-name") or instance.args.get("model-name") or instance.model.served_name
    return str(name[0] if isinstance(name, list) else name)


def agreed(plans: Iterable[BoxPlan]) -> Rollout:
    """The rollout settings of a run. Raises ConfigError naming two boxes that have them otherwise."""
    first: BoxPlan | None = None
    wrong: list[str] = []
    for plan in plans:
        first = first or plan
        for key in OF_THE_RUN:
            mine, others = getattr(plan.settings.rollout, key), getattr(first.settings.rollout, key)
            if mine != others and not any(line.startswith(f"rollout.{key} ") for line in wrong):
                wrong.append(
                    f"rollout.{key} is {others!r} for {first.name}{_source(first, key)} and {mine!r} for "
                    f"{plan.name}{_source(plan, key)}, and it concerns the whole run: set it for all boxes, "
                    "in group_data/all.py"
                )
    if wrong:
        raise ConfigError(wrong)
    return first.settings.rollout if first else Rollout()


def _source(plan: BoxPlan, key: str) -> str:
    source = plan.because.get(f"rollout.{key}")
    return f" ({source})" if source else ""
