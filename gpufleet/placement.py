"""Where each serve entry goes: which cards of the box, by which stack, how many instances of how many GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpufleet.catalogue import Catalogue
from gpufleet.errors import ConfigError
from gpufleet.fit import holds
from gpufleet.flags import compute_requests, said_of, written
from gpufleet.groups import choose
from gpufleet.layers import Layer
from gpufleet.models import Model
from gpufleet.provenance import Given
from gpufleet.settings import Serve
from gpufleet.stacks import Stack
from gpufleet.topology import islands
from gpufleet.traits import arch, traits_of, traits_of_group
from gpufleet.view import View, strongest

SIZES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Place:
    """An entry's instance on a group of GPUs; an empty group is a stack for CPUs.

    + why: who chose the number of GPUs; `stack_why`: who chose the stack
    """

    entry: Serve
    model: Model
    stack: Stack
    number: int  # of the entry's instances, from 1
    gpus: tuple[int, ...]
    size: int  # GPUs that it is to have; more than it got when the box has not enough
    why: str
    stack_why: str


@dataclass(frozen=True)
class Unplaced:
    """An entry that no card of the box can serve."""

    model: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class _Want:
    """What one entry asks of one kind of card."""

    entry: Serve
    model: Model
    stack: Stack
    kind: tuple[int, ...]  # the cards of that compute capability that are free and hold it, if any do
    roomy: frozenset[int]  # all cards of the box, free or not, of which `size` hold it; or all of the kind
    size: int
    count: int | None  # None: as many as there is room for
    why: str
    stack_why: str
    fits: bool


def place(
    view: View, facts: Mapping[str, Any], stacks: Catalogue[Stack], models: Catalogue[Model]
) -> tuple[list[Place], list[Unplaced]]:
    """Place all entries of a box. Raises ConfigError for a name that no catalogue has, or when no stack is known."""
    traits = traits_of(facts)
    entries = [Serve(model=item) if isinstance(item, str) else item for item in view.settings(traits).settings.serve]
    sizes = {gpu["index"]: gpu["memory_mib"] or 0 for gpu in facts.get("gpus") or []}
    free = list(sizes)
    wants: list[_Want] = []
    unplaced: list[Unplaced] = []
    for entry in entries:
        model = models.find(entry.model, f"{view.box.name}: serve")
        found = list(_wants(view, facts, stacks, entry, model, free))
        best = _best(facts, found)
        if best is None:
            unplaced.append(_unplaced(view, facts, stacks, entry, model))
            continue
        # One entry alone has the box to itself; of several, each has one instance unless it says how many.
        alone = [want for want in found if want.fits] if len(entries) == 1 and best.count is None else []
        for want in _shared(best, found) if best.count else alone or [best]:
            room = len(want.kind) // want.size if want.size else 1
            count = want.count or (max(room, 1) if len(entries) == 1 else 1)
            wants.append(replace(want, count=count))
            # the smallest that hold it: a large card is left for an entry that comes later and needs one
            taken = sorted(want.kind, key=lambda index: sizes[index])[: want.size * count]
            free = [index for index in free if index not in taken]
    return list(_grouped(facts, wants)), unplaced


def _wants(
    view: View, facts: Mapping[str, Any], stacks: Catalogue[Stack], entry: Serve, model: Model, free: Sequence[int]
) -> Iterator[_Want]:
    """What the entry asks of each kind of card that a stack is known for."""
    gpus = {gpu["index"]: gpu for gpu in facts.get("gpus") or []}
    kinds: dict[str, list[int]] = {}
    for index in free:
        kinds.setdefault(arch(gpus[index]), []).append(index)
    taken = {arch(gpu) for gpu in gpus.values()} - set(kinds)
    for name, kind in [*kinds.items(), *((name, []) for name in sorted(taken))] or [("cpu", [])]:
        traits = traits_of_group(facts, kind, None) if kind else traits_of(facts)
        layers = list(view.layers(entry, traits))
        named, chosen = strongest(layers, "stack")
        stack = _stack(view, stacks, named, name)
        if stack is None:
            continue
        chosen = chosen or f"computed: the default for {name}"
        options, given_by = strongest(layers, "options")
        stack = stack.with_options(options or [], f"{view.box.name}: options ({given_by})")
        count = strongest(layers, "instances")[0]
        if "cpu" in stack.arch:
            yield _Want(entry, model, stack, (), frozenset(), 0, count or 1, "", chosen, True)
            return
        said = said_of("tensor_parallel_size", model, stack, layers, traits)
        why, asked = said[-1] if said else Given("", None)
        args = _args(stack, model, layers, traits)
        alike = [gpu for gpu in gpus.values() if arch(gpu) == name]
        if asked is not None:
            size, fits = asked, True
        else:
            size, fits, why = _fewest(facts, model, stack, alike, kind, args)
        roomy = _roomy(model, stack, alike, size, args)
        own = [index for index in kind if index in roomy]
        fits = fits and len(own if asked is None else kind) >= size
        if len(own) < size * (count or 1):  # there are not enough of them: rules say so of the ones that are too small
            roomy, own = frozenset(gpu["index"] for gpu in alike), kind
        yield _Want(entry, model, stack, tuple(own), roomy, size, count, str(why), chosen, fits and name in stack.arch)


def _stack(view: View, stacks: Catalogue[Stack], named: str | None, name: str) -> Stack | None:
    """The stack that was named, else the one that is the default for such cards."""
    if named is not None:
        return stacks.find(named, f"{view.box.name}: serve")
    found = [stack for stack in stacks.values() if name in stack.default_for]
    if len(found) > 1:
        names = " and ".join(sorted(stack.name for stack in found))
        raise ConfigError([f"{view.box.name}: {names} are both the default for {name}; set `stack`"])
    return found[0] if found else None


def _args(stack: Stack, model: Model, layers: Sequence[Layer], traits: Sequence[str]) -> Mapping[str, Any]:
    """The flags that decide memory, as far as they are known before there is a place."""
    args = written(stack, model, layers, traits).args
    compute_requests(args, stack, model, said_of("streams", model, stack, layers, traits))
    return args.values


def _roomy(
    model: Model, stack: Stack, gpus: Sequence[Mapping[str, Any]], size: int, args: Mapping[str, Any]
) -> frozenset[int]:
    """Those GPUs of which any `size` hold the model at its full length: of cards of one kind the large ones."""
    enough: dict[int, bool] = {}
    for gpu in gpus:
        if gpu["memory_mib"] not in enough:
            enough[gpu["memory_mib"]] = holds(model, stack, [gpu], size, args)
    return frozenset(gpu["index"] for gpu in gpus if enough[gpu["memory_mib"]])


def _fewest(
    facts: Mapping[str, Any],
    model: Model,
    stack: Stack,
    alike: Sequence[Mapping[str, Any]],
    free: Sequence[int],
    args: Mapping[str, Any],
) -> tuple[int, bool, str]:
    """The fewest GPUs of a kind that hold the model at its full length; without sizes of the model, an island.

    + alike: all cards of the kind, so that a model is not planned for less than it needs when few of them are `free`
    """
    shape = model.architecture
    kind = free if shape is None else [gpu["index"] for gpu in alike]
    gpus = [gpu for gpu in alike if gpu["index"] in kind]
    sizes = [size for size in SIZES if size <= len(kind)] or [1]
    if shape is None:
        largest = max((len(island) for island in islands(gpus, facts.get("links") or {})), default=1)
        room = largest if largest > 1 else len(kind)
        return max(size for size in sizes if size <= max(room, 1)), bool(kind), "computed: the GPUs that are joined"
    sizes = [size for size in sizes if shape.heads % size == 0] or [1]
    for size in sizes:
        if len(_roomy(model, stack, gpus, size, args)) >= size:
            return size, True, f"computed: the fewest GPUs that hold {model.name} at its full length"
    return sizes[-1], False, "computed: all GPUs of a kind, and still too few"


def _best(facts: Mapping[str, Any], wants: Sequence[_Want]) -> _Want | None:
    """The kind of card for one entry: where it fits with the least memory left over, else the most memory."""
    sizes = {gpu["index"]: gpu["memory_mib"] or 0 for gpu in facts.get("gpus") or []}

    def total(want: _Want) -> int:
        return sum(sizes[index] for index in want.kind)

    fitting = [want for want in wants if want.fits]
    if fitting:
        return min(fitting, key=lambda want: (total(want), want.kind))
    return max(wants, key=lambda want: (total(want), [-index for index in want.kind]), default=None)


def _shared(best: _Want, wants: Sequence[_Want]) -> list[_Want]:
    """So many instances as the entry asks for: on its best kind of card, and what has no room there on other kinds."""
    left, found = best.count or 1, []
    for want in [best, *(other for other in wants if other.fits and other is not best)]:
        room = min(left, len(want.kind) // want.size) if want.size else left
        if room:
            found.append(replace(want, count=room))
            left -= room
    if not found:
        return [best]
    return [replace(found[0], count=(found[0].count or 0) + left), *found[1:]]


def _unplaced(view: View, facts: Mapping[str, Any], stacks: Catalogue[Stack], entry: Serve, model: Model) -> Unplaced:
    kinds = sorted({arch(gpu) for gpu in facts.get("gpus") or []}) or ["cpu"]
    able = sorted(stack.name for stack in stacks.values() if set(kinds) & set(stack.arch))
    known = sorted(
        {name for stack in stacks.values() for name in stack.default_for}, key=lambda name: (len(name), name)
    )
    named = f"name one with `stack` ({', '.join(able)}), or " if able else ""
    return Unplaced(
        model.name,
        f"no stack is known for {' or '.join(kinds)}",
        f"{named}serve {model.name} on a box with one of: {', '.join(known)}",
    )


def _grouped(facts: Mapping[str, Any], wants: Sequence[_Want]) -> Iterator[Place]:
    """Groups of GPUs for all entries of a kind of card together, so that one does not spoil another's links."""
    gpus = list(facts.get("gpus") or [])
    groups: dict[int, list[tuple[int, ...]]] = {}
    for name in sorted({arch(gpu) for gpu in gpus}):
        kind = [gpu for gpu in gpus if arch(gpu) == name]
        indexes = {gpu["index"] for gpu in kind}
        of_kind = [(number, want) for number, want in enumerate(wants) if set(want.kind) & indexes]
        if all(want.roomy >= indexes for _, want in of_kind):
            together = [of_kind]
        else:  # first those that need large cards
            together = [[item] for item in sorted(of_kind, key=lambda item: len(item[1].roomy))]
        for items in together:
            sizes = [want.size for _, want in items for _ in range(want.count or 1)]
            roomy = frozenset(indexes).intersection(*(want.roomy for _, want in items))
            found = _chosen(sizes, [gpu for gpu in kind if gpu["index"] in roomy & indexes], facts.get("links") or {})
            taken = iter(found)
            for number, want in items:
                own = [next(taken) for _ in range(want.count or 1)]
                groups[number] = sorted(own, key=lambda group: (-len(group), group))
            indexes -= {index for group in found for index in group}
    numbers: Counter[int] = Counter()  # an entry on several kinds of card goes on counting
    for number, want in enumerate(wants):
        for group in groups.get(number) or [()] * (want.count or 1):
            numbers[id(want.entry)] += 1
            nth = numbers[id(want.entry)]
            yield Place(want.entry, want.model, want.stack, nth, group, want.size, want.why, want.stack_why)


def _chosen(sizes: Sequence[int], gpus: Sequence[Mapping[str, Any]], links: Mapping[str, str]) -> list[tuple[int, ...]]:
    """A group for each size. When more is asked for than there is, the last ones are short: a rule refuses that."""
    for whole in range(len(sizes), -1, -1):
        found = choose(sizes[:whole], gpus, links)
        if found is not None:
            break
    found = list(found or [])
    free = [gpu["index"] for gpu in gpus if not any(gpu["index"] in group for group in found)]
    for size in sizes[len(found) :]:
        found.append(tuple(free[:size]))
        free = free[size:]
    return found
