"""Groups of GPUs for boxes too large to be searched: grown greedily, then GPUs change places while that helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

Group = tuple[int, ...]
# Of a group: its weakest rank and how many links have it, the sum of ranks, whether memory is equal, the memory in MiB.
Measure = tuple[int, int, int, bool, int]
NO_LINK = 1 << 60


@dataclass(frozen=True)
class Swaps:
    """A box as `groups` has it: places 0 … n-1 for GPUs, sizes descending.

    + ranks: rank of each pair, -1 for two that cannot share a group
    + fits: whether groups of these sizes can still be formed from these GPUs
    """

    sizes: Sequence[int]
    ranks: Sequence[Sequence[int]]
    memory: Sequence[int]
    fits: Callable[[Sequence[int], set[int]], bool]

    def settle(self) -> list[Group]:
        """Good groups, largest first, of equal sizes those with the most memory and the lowest indexes first."""
        groups = self._greedy()
        # First with the number of links of the weakest kind, which goes only with the last of them; then as asked.
        for counted in (True, False):
            improved = True
            while improved:
                improved = self._improve(groups, counted)
        done = [tuple(sorted(group)) for group in groups[:-1]]
        return sorted(done, key=lambda group: (-len(group), -sum(self.memory[gpu] for gpu in group), group))

    def _greedy(self) -> list[list[int]]:
        """A group for each size, each the best one that can be grown then; last the GPUs left over."""
        free = set(range(len(self.ranks)))
        groups: list[list[int]] = []
        for step, size in enumerate(self.sizes):
            grown = [group for seed in sorted(free) if (group := self._grown(seed, size, free))]
            fitting = [group for group in grown if self.fits(self.sizes[step + 1 :], free - set(group))]
            groups.append(max(fitting, key=lambda group: self._score([self._measure(group)], False)))
            free -= set(groups[-1])
        return [*groups, sorted(free)]

    def _grown(self, seed: int, size: int, free: set[int]) -> list[int] | None:
        group = [seed]
        while len(group) < size:
            more = [gpu for gpu in sorted(free - set(group)) if self.ranks[seed][gpu] >= 0]
            if not more:
                return None
            near = {gpu: [self.ranks[gpu][other] for other in group] for gpu in more}
            group.append(max(more, key=lambda gpu: (min(near[gpu]), sum(near[gpu]))))
        return group

    def _improve(self, groups: list[list[int]], counted: bool) -> bool:
        """Make the first swap that helps; whether there was one."""
        measures = [self._measure(group) for group in groups[:-1]]
        score = self._score(measures, counted)
        for (one, i), (other, j) in self._pairs(groups):
            groups[one][i], groups[other][j] = groups[other][j], groups[one][i]
            changed = list(measures)
            for place in {one, other} - {len(groups) - 1}:
                changed[place] = self._measure(groups[place])
            if self._score(changed, counted) > score:
                return True
            groups[one][i], groups[other][j] = groups[other][j], groups[one][i]
        return False

    def _pairs(self, groups: list[list[int]]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Places of two GPUs in different groups that could change places."""
        for one, other in combinations(range(len(groups)), 2):
            for i, a in enumerate(groups[one]):
                for j, b in enumerate(groups[other]):
                    if self.ranks[a][b] >= 0:
                        yield (one, i), (other, j)

    def _measure(self, group: Sequence[int]) -> Measure:
        inside = [self.ranks[a][b] for a, b in combinations(group, 2)]
        weakest = min(inside, default=NO_LINK)
        memory = [self.memory[gpu] for gpu in group]
        return weakest, inside.count(weakest), sum(inside), len(set(memory)) == 1, sum(memory)

    @staticmethod
    def _score(measures: Sequence[Measure], counted: bool) -> tuple[int, ...]:
        weakest = min(measure[0] for measure in measures)
        at_weakest = sum(measure[1] for measure in measures if measure[0] == weakest)
        return (
            weakest,
            -at_weakest if counted else 0,
            sum(measure[2] for measure in measures),
            sum(measure[3] for measure in measures),
            *(measure[4] for measure in measures),
        )
