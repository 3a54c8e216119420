"""What joins the GPUs of a box: the order of links, islands of NVLink, bridges with fewer links than they should have.

Links come from the facts (or a topology scenario): {"0-1": "NV4"} for each pair i < j, in the words of
`nvidia-smi topo -m`; a pair that nothing could be told of is left out and counts as SYS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any

# Worst to best: across sockets, across host bridges of one socket, one host bridge, several switches, one switch.
PCIE = ("SYS", "NODE", "PHB", "PXB", "PIX")
# More than the PCIe links of a group of 70 cards can add up to, so that one NVLink outweighs them all.
NVLINK_WEIGHT = 10_000
# GPUs that hang together by NVLink: the islands of so many are found by trying all, in half a second at worst.
ALWAYS_EXACT = 16

Gpu = Mapping[str, Any]


@lru_cache(maxsize=256)
def rank(link: str) -> int:
    """The strength of a link: SYS 0, NODE 1, PHB 2, PXB 3, PIX 4, NV# 10,000 for each of its links.

    It orders links, and sums of it order groups: first by the number of NVLinks inside, then by their PCIe links.
    Raises ValueError for a word that `nvidia-smi topo -m` does not have.
    """
    if link in PCIE:
        return PCIE.index(link)
    if link.startswith("NV") and link[2:].isdecimal() and int(link[2:]) > 0:
        return NVLINK_WEIGHT * int(link[2:])
    raise ValueError(f"{link!r} is no link between two GPUs; use NV1, NV2 …, {', '.join(reversed(PCIE))}")


def nvlinks(link: str) -> int:
    """How many NVLinks a link is made of; 0 for one over PCIe."""
    return rank(link) // NVLINK_WEIGHT


def link_between(links: Mapping[str, str], a: int, b: int) -> str:
    """The link of two GPUs, in either order."""
    return links.get(f"{a}-{b}" if a < b else f"{b}-{a}", "SYS")


def weakest(links: Mapping[str, str], gpus: Sequence[int]) -> str | None:
    """The weakest link inside a group of GPUs, None for fewer than two."""
    return min((link_between(links, a, b) for a, b in combinations(gpus, 2)), key=rank, default=None)


def bridges(links: Mapping[str, str]) -> dict[str, int]:
    """{"0-2": 4}: the pairs joined by NVLink, with the number of links."""
    found = ((pair, nvlinks(links[pair])) for pair in sorted(links, key=_ends))
    return {pair: count for pair, count in found if count}


def unequal_memory(gpus: Sequence[Gpu], group: Sequence[int]) -> bool:
    """Whether the GPUs of a group differ in memory: each then holds what the smallest can."""
    return len({gpu["memory_mib"] for gpu in gpus if gpu["index"] in group}) > 1


def crosses_islands(group: Sequence[int], islands: Sequence[Sequence[int]]) -> bool:
    """Whether no single island has all GPUs of a group.

    Such a group may still be joined by NVLink throughout (a pair of DGX-1 across the quads): `weakest` tells.
    """
    return bool(group) and not any(set(group) <= set(island) for island in islands)


def islands(gpus: Sequence[Gpu], links: Mapping[str, str]) -> list[tuple[int, ...]]:
    """The GPUs split into groups joined by NVLink all to all, each of one compute capability.

    Of all such splits the one with the fewest groups; of these the one whose largest groups are largest, then the
    one with the most NVLinks inside, then the one with the lowest indexes in front. Exact for up to 16 GPUs that hang
    together; in larger tangles, which no board wires, a large island is taken, then another of the rest.
    """
    kind = {gpu["index"]: gpu["compute_capability"] for gpu in gpus}
    near: dict[int, frozenset[int]] = {
        a: frozenset(b for b in kind if b != a and kind[a] == kind[b] and nvlinks(link_between(links, a, b)))
        for a in kind
    }
    found: list[tuple[int, ...]] = []
    rest = set(kind)
    while rest:
        component = _component(min(rest), near)
        rest -= component
        if len(component) <= ALWAYS_EXACT:
            found += _split(frozenset(component), near, links, {})[1]
        else:
            found += _one_by_one(component, near)
    return sorted(found)


def _one_by_one(rest: set[int], near: Mapping[int, frozenset[int]]) -> list[tuple[int, ...]]:
    """Islands of what is left, each the largest of those that grow from one GPU by its best-joined neighbours."""
    found = []
    while rest:
        grown = [_grown(gpu, near[gpu] & rest, near) for gpu in sorted(rest)]
        found.append(max(grown, key=len))
        rest = rest - set(found[-1])
    return found


def _grown(start: int, fit: frozenset[int], near: Mapping[int, frozenset[int]]) -> tuple[int, ...]:
    """An island with `start` and some of `fit`, which are all joined to it."""
    group = [start]
    while fit:
        group.append(max(sorted(fit), key=lambda gpu: len(near[gpu] & fit)))
        fit = fit & near[group[-1]]
    return tuple(sorted(group))


def _component(start: int, near: Mapping[int, frozenset[int]]) -> set[int]:
    seen, todo = {start}, [start]
    while todo:
        new = near[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


_Split = tuple[tuple[int, list[int], int], list[tuple[int, ...]]]


def _split(
    rest: frozenset[int],
    near: Mapping[int, frozenset[int]],
    links: Mapping[str, str],
    known: dict[frozenset[int], _Split],
) -> _Split:
    """(cost, cliques) of the best split of these GPUs; the cost is (number, sizes negated and sorted, -ranks inside).

    The largest clique of the best split is maximal (else a GPU of a smaller one could join it, at no more cliques
    and a larger first size), and so on for the rest: trying the maximal cliques is enough.
    """
    if not rest:
        return (0, [], 0), []
    if rest not in known:
        options = []
        for clique in _maximal(frozenset(), rest, frozenset(), near):
            (number, sizes, ranks), others = _split(rest - clique, near, links, known)
            inside = sum(rank(link_between(links, a, b)) for a, b in combinations(sorted(clique), 2))
            cost = (number + 1, sorted([-len(clique), *sizes]), ranks - inside)
            options.append((cost, sorted([tuple(sorted(clique)), *others])))
        known[rest] = min(options)
    return known[rest]


def _maximal(
    clique: frozenset[int], more: frozenset[int], done: frozenset[int], near: Mapping[int, frozenset[int]]
) -> list[frozenset[int]]:
    """The maximal cliques that contain `clique`, extended by `more`, without `done` (Bron and Kerbosch, with pivot)."""
    if not more:
        return [] if done else [clique]
    pivot = max(sorted(more | done), key=lambda gpu: len(near[gpu] & more))
    found = []
    for gpu in sorted(more - near[pivot]):
        found += _maximal(clique | {gpu}, more & near[gpu], done & near[gpu], near)
        more, done = more - {gpu}, done | {gpu}
    return found


def degraded(links: Mapping[str, str], gpus: Sequence[Gpu], expected: int | None) -> list[str]:
    """One line for each pair (or card) with fewer NVLinks than it should have.

    + expected: the links of two bridged GPUs, as the owner knows them (`expect.nvlink`); None when nothing is known

    With `expected`: in a box of bridged cards (none has more than one NVLink peer) each pair must have so many; cards
    without a bridge are named too, but for one left over of an odd number, cards that are alone of their name, and
    cards of a name without any NVLink where those of another name have it. In a mesh or a cube, where uneven pairs
    are the board's own wiring, the best pair of each card must have so many; where no pair at all does, all pairs of
    a card together: 2 and 6 are both right for a DGX-1, and only 6 tells when any one of its links is down.
    Without: bridged pairs with fewer links than another pair of the same cards in the box; nothing in a mesh or a cube.
    """
    names = {gpu["index"]: gpu["name"] for gpu in gpus}
    found = {pair: count for pair, count in bridges(links).items() if set(_ends(pair)) <= set(names)}
    peers = Counter(gpu for pair in found for gpu in _ends(pair))
    mesh = max(peers.values(), default=0) > 1
    if expected is None:
        return [] if mesh else _fewer_than_alike(found, names)
    if mesh:
        return _poor_cards(found, names, peers, expected)
    said = [
        f"GPUs {a} and {b} ({names[a]}): {_count(found[f'{a}-{b}'])}, {expected} are expected"
        for a, b in map(_ends, found)
        if found[f"{a}-{b}"] < expected
    ]
    return said + (_unbridged(links, names, peers, expected) if expected else [])


def _fewer_than_alike(found: Mapping[str, int], names: Mapping[int, Any]) -> list[str]:
    """Pairs of which another pair of the same two cards in the box has more."""
    cards = {pair: sorted(str(names[gpu]) for gpu in _ends(pair)) for pair in found}
    said = []
    for pair, count in found.items():
        best = max((other for other in found if cards[other] == cards[pair]), key=lambda other: found[other])
        if count < found[best]:
            (a, b), (c, d) = _ends(pair), _ends(best)
            said.append(
                f"GPUs {a} and {b} ({names[a]}): {_count(count)}, GPUs {c} and {d} of the same kind have {found[best]}"
            )
    return said


def _poor_cards(
    found: Mapping[str, int], names: Mapping[int, Any], peers: Mapping[int, int], expected: int
) -> list[str]:
    """Cards of a mesh with fewer links than expected, in their best pair or in all; a kind without NVLink misses none.

    In all counts where some card has just so many and no pair has: behind a switch each pair has the same links again.
    """
    best, total = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for pair, count in found.items():
        for gpu in _ends(pair):
            best[gpu] = max(best[gpu], count)
            total[gpu] += count
    linked = {names[gpu] for gpu in peers}
    in_all = max(best.values(), default=0) < expected and expected in total.values()
    return [
        f"GPU {gpu} ({names[gpu]}): "
        + (f"{_count(total[gpu])} in all" if in_all else f"at most {_count(count)} to another GPU")
        + f", {expected} are expected"
        for gpu, count in sorted(best.items())
        if (total[gpu] if in_all else count) < expected and names[gpu] in linked
    ]


def _unbridged(
    links: Mapping[str, str], names: Mapping[int, Any], peers: Mapping[int, int], expected: int
) -> list[str]:
    """Cards without a bridge that could have one: at least two of the same name have none."""
    linked = {names[gpu] for gpu in peers}
    said = []
    for name in sorted({names[gpu] for gpu in names}, key=str):
        alone = sorted(gpu for gpu in names if names[gpu] == name and gpu not in peers)
        if len(alone) < 2 or (linked and name not in linked):
            continue
        if len(alone) == 2:
            what = f"GPUs {alone[0]} and {alone[1]} ({name}): no NVLink ({link_between(links, *alone)})"
        else:
            what = f"GPUs {', '.join(map(str, alone))} ({name}): no NVLink to any other GPU"
        said.append(f"{what}, {expected} are expected")
    return said


def _count(links: int) -> str:
    return f"{links} NVLink{'' if links == 1 else 's'}"


def _ends(pair: str) -> tuple[int, int]:
    a, b = pair.split("-")
    return int(a), int(b)
