"""Which GPUs an instance gets: disjoint groups of given sizes, joined as well as the box allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any

from gpufleet.swaps import Group, Swaps
from gpufleet.topology import link_between, rank

# Steps of the exact search before a box of more GPUs than this is settled by swaps (about 0.1 s).
ALWAYS_EXACT = 8
STEPS = 40_000


def choose(
    sizes: Sequence[int], gpus: Sequence[Mapping[str, Any]], links: Mapping[str, str]
) -> list[tuple[int, ...]] | None:
    """Disjoint groups of GPU indexes, one of each size, in the order of the sizes; None when they do not fit.

    A group never mixes compute capabilities. Of all ways to form the groups the one is taken with, in this order:
    1. the strongest weakest link inside any group;
    2. the largest sum of `rank` over all links inside groups: NVLinks by number, then PCIe links by kind;
    3. the fewest groups of unequal memory;
    4. the most memory in the largest group (of equal sizes the first), then in the next;
    5. the lowest indexes, for the groups in the same order, largest first.

    Exact for up to 8 GPUs, and for more where the links leave few choices (pairs, switches, equal cards); else a good
    choice, found by swapping GPUs between groups. The same question has always the same answer.
    Raises ValueError for a negative size or a link that is none. A size of 0 gets an empty group.
    """
    if any(size < 0 for size in sizes):
        raise ValueError(f"a group cannot have {min(sizes)} GPUs")
    if sum(sizes) > len(gpus):
        return None
    cards = sorted(gpus, key=lambda gpu: gpu["index"])
    indexes = [gpu["index"] for gpu in cards]
    order = sorted(range(len(sizes)), key=lambda position: -sizes[position])
    # What two boxes share when they are alike, so that a fleet of equal boxes is searched once.
    groups = _choose(
        tuple(sizes[position] for position in order if sizes[position]),
        tuple(tuple(gpu["compute_capability"] or ()) for gpu in cards),
        tuple(gpu["memory_mib"] or 0 for gpu in cards),
        tuple(rank(link_between(links, a, b)) for a, b in combinations(indexes, 2)),
    )
    if groups is None:
        return None
    found: list[tuple[int, ...]] = [()] * len(sizes)
    for position, group in zip(order, groups, strict=False):
        found[position] = tuple(indexes[place] for place in group)
    return found


@lru_cache(maxsize=4096)
def _choose(
    sizes: tuple[int, ...], kinds: tuple[tuple[int, ...], ...], memory: tuple[int, ...], ranks: tuple[int, ...]
) -> list[Group] | None:
    """The same on places 0 … n-1 in the order of the indexes, sizes descending and none 0."""
    if len(set(kinds)) <= 1 and len(set(memory)) <= 1 and len(set(ranks)) <= 1:
        starts = [sum(sizes[:step]) for step in range(len(sizes))]
        return [tuple(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]
    box = _Box(sizes, kinds, memory, ranks)
    if not box.fits(sizes, set(range(len(kinds)))):
        return None
    steps = None if len(kinds) <= ALWAYS_EXACT else STEPS
    try:
        return _exact(box, steps)
    except _SpentError:
        return Swaps(sizes, box.ranks, memory, box.fits).settle()


@lru_cache(maxsize=4096)
def _packs(sizes: tuple[int, ...], room: tuple[int, ...]) -> bool:
    """Whether groups of these sizes go into rooms of so many GPUs, each into one."""
    if not sizes:
        return True
    return any(
        size >= sizes[0] and _packs(sizes[1:], tuple(sorted((*room[:place], size - sizes[0], *room[place + 1 :]))))
        for place, size in enumerate(room)
    )


class _SpentError(Exception):
    """The exact search took more steps than it may."""


@dataclass(frozen=True)
class _Box:
    sizes: tuple[int, ...]  # of the groups, descending
    kinds: tuple[tuple[int, ...], ...]  # compute capability of each GPU
    memory: tuple[int, ...]  # MiB of each GPU
    flat: tuple[int, ...]  # ranks of the pairs (0, 1), (0, 2), …

    @cached_property
    def ranks(self) -> list[list[int]]:
        """Rank of each pair, -1 for two of unlike capability and for a GPU with itself."""
        table = [[-1] * len(self.kinds) for _ in self.kinds]
        for (a, b), value in zip(combinations(range(len(self.kinds)), 2), self.flat, strict=True):
            if self.kinds[a] == self.kinds[b]:
                table[a][b] = table[b][a] = value
        return table

    @cached_property
    def twins(self) -> list[int]:
        """For each GPU the bit of the last one before it that could take its place in any group; 0 without one."""
        found = []
        for b in range(len(self.kinds)):
            alike = [a for a in range(b) if self._alike(a, b)]
            found.append(1 << alike[-1] if alike else 0)
        return found

    def _alike(self, a: int, b: int) -> bool:
        return (self.kinds[a], self.memory[a]) == (self.kinds[b], self.memory[b]) and all(
            self.ranks[a][other] == self.ranks[b][other] for other in range(len(self.kinds)) if other not in (a, b)
        )

    def fits(self, sizes: Sequence[int], free: set[int]) -> bool:
        """Whether groups of these sizes can be formed from these GPUs, each of one capability."""
        kinds = [self.kinds[gpu] for gpu in free]
        return _packs(tuple(sizes), tuple(sorted(kinds.count(kind) for kind in set(kinds))))

    def worth(self, step: int, group: Group, total: int) -> int:
        """Criteria 2 to 4 as one number that adds up over the groups: links, equal memory, memory by position."""
        width = 40  # bits for the memory of a group in MiB
        memory = [self.memory[gpu] for gpu in group]
        equal = memory.count(memory[0]) == len(memory)
        return (((total << 16) + equal) << width * len(self.sizes)) + (
            sum(memory) << width * (len(self.sizes) - 1 - step)
        )


def _exact(box: _Box, steps: int | None) -> list[Group]:
    """The best groups; for each weakest link allowed, strongest first, the first that has any.

    Raises _SpentError after so many steps.
    """
    search = _Search(box, steps)
    inside = {value for row in box.ranks for value in row if value >= 0} or {0}
    for threshold in sorted(inside, reverse=True):
        found = search.at(threshold)
        if found is not None:
            return found
    raise AssertionError("groups that pack into the capabilities form at the weakest link")


_Known = tuple[int, tuple[Group, ...]] | None
_Last = tuple[int, int] | None


@dataclass
class _Search:
    """The search for one box: groups in the order of the sizes, each state (step, free GPUs, last group) solved once.

    Only one of several equal answers is looked at: groups of one size come in the order of criteria 4 and 5, and of
    GPUs that can take each other's place the lowest free one comes first. Both hold for the answer that is wanted.
    """

    box: _Box
    left: int | None
    near: list[int] = field(default_factory=list)  # for each GPU the bits of those it may share a group with
    known: dict[tuple[int, int, _Last], _Known] = field(default_factory=dict)

    def at(self, threshold: int) -> list[Group] | None:
        self.near = [sum(1 << b for b, value in enumerate(row) if value >= threshold) for row in self.box.ranks]
        self.known = {}
        found = self._best(0, (1 << len(self.box.kinds)) - 1, None)
        return list(found[1]) if found else None

    def _best(self, step: int, free: int, last: _Last) -> _Known:
        """(worth, groups) of the best groups from this step on, None when there are none."""
        sizes = self.box.sizes
        if step == len(sizes):
            return 0, ()
        if sizes[step] == 1:
            return self._singles(step, free)
        key = (step, free, last)
        if key in self.known:
            return self.known[key]
        best: _Known = None
        groups: list[tuple[Group, int]] = []
        alike = sizes.count(sizes[step]) - (step - sizes.index(sizes[step]))
        self._grow((), sizes[step], free, *self._fit(free, last, sizes[step], alike), 0, groups)
        for group, total in groups:
            order = (-sum(self.box.memory[gpu] for gpu in group), group[0])
            if last is not None and order < last:
                continue
            rest = self._best(step + 1, free & ~sum(1 << gpu for gpu in group), order if alike > 1 else None)
            if rest is None:
                continue
            worth = self.box.worth(step, group, total) + rest[0]
            if best is None or worth > best[0]:
                best = worth, (group, *rest[1])
        self.known[key] = best
        return best

    def _fit(self, free: int, last: _Last, size: int, alike: int) -> tuple[int, int]:
        """The GPUs the next group may start at or have, and how many of them must be left at its first.

        With equal memory the groups of one size start in ascending order: all that are to come lie beyond the start.
        """
        if len(set(self.box.memory)) > 1:
            return free, size
        return free & -(2 << last[1]) if last else free, size * alike

    def _singles(self, step: int, free: int) -> _Known:
        """The groups of one, which come last: the largest free GPUs."""
        alone = [gpu for gpu in range(len(self.box.kinds)) if free >> gpu & 1]
        alone.sort(key=lambda gpu: -self.box.memory[gpu])
        groups = tuple((gpu,) for gpu in alone[: len(self.box.sizes) - step])
        return sum(self.box.worth(step + place, group, 0) for place, group in enumerate(groups)), groups

    def _grow(
        self, group: Group, more: int, free: int, fit: int, least: int, total: int, into: list[tuple[Group, int]]
    ) -> None:
        """All groups with `more` further GPUs of `fit`, in ascending order, with the sum of their ranks.

        + least: how many of `fit` must be there at the next GPU, itself included
        """
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise _SpentError
        if not more:
            into.append((group, total))
            return
        taken = sum(1 << gpu for gpu in group)
        while fit.bit_count() >= least:
            bit = fit & -fit
            fit ^= bit
            if self.box.twins[bit.bit_length() - 1] & free & ~taken:
                continue
            gpu = bit.bit_length() - 1
            inside = total + sum(self.box.ranks[gpu][other] for other in group)
            self._grow((*group, gpu), more - 1, free, fit & self.near[gpu], more - 1, inside, into)
