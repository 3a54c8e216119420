"""The choice of GPU groups: what an expert would choose, and a brute force of every choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet import groups
from gpufleet.groups import choose
from gpufleet.topology import rank
from tests.unit.topologies import Gpus, Links, among, cards, joined, left_of, scenario, without

PAIRS = [(0, 1), (2, 3)]
EXPERT = [
    ("cpu-only", 1, None),
    ("single-2080ti", 1, [(0,)]),
    ("dual-2080ti-nv2", 1, [(0,), (1,)]),
    ("dual-2080ti-nv2", 2, [(0, 1)]),
    ("dual-2080ti-pcie", 2, [(0, 1)]),
    ("dual-3090-nv4", 2, [(0, 1)]),
    ("dual-3090-sys", 2, [(0, 1)]),
    ("dual-5090-phb", 2, [(0, 1)]),
    ("mixed-3090-two-v100", 1, [(1,), (2,), (0,)]),  # the most memory first
    ("mixed-3090-two-v100", 2, [(1, 2)]),
    ("quad-3090-two-pairs", 1, [(0,), (1,), (2,), (3,)]),
    ("quad-3090-two-pairs", 2, [(0, 2), (1, 3)]),
    ("quad-3090-two-pairs", 4, [(0, 1, 2, 3)]),
    ("quad-v100-mesh", 2, [(0, 3), (1, 2)]),
    ("quad-v100-mesh", 4, [(0, 1, 2, 3)]),
    ("quad-v100-ring", 2, [(0, 1), (2, 3)]),  # (1, 3) is NV1
    ("quad-v100-ring", 4, [(0, 1, 2, 3)]),
    ("octo-v100-dgx1", 1, [(i,) for i in range(8)]),
    ("octo-v100-dgx1", 2, [(0, 3), (1, 2), (4, 7), (5, 6)]),
    ("octo-v100-dgx1", 4, [(0, 1, 2, 3), (4, 5, 6, 7)]),
    ("octo-v100-dgx1", 8, [tuple(range(8))]),
]


@pytest.mark.parametrize(("name", "size", "wanted"), EXPERT)
def test_scenarios(name: str, size: int, wanted: list[tuple[int, ...]] | None) -> None:
    gpus, links = scenario(name)
    assert choose([size] * max(1, len(gpus) // size), gpus, links) == wanted


def test_too_many_gpus_and_too_few_of_a_capability_do_not_fit() -> None:
    gpus, links = scenario("mixed-3090-two-v100")
    assert choose([4], gpus, links) is None
    assert choose([3], gpus, links) is None
    assert choose([2, 2], gpus, links) is None
    assert choose([2, 1], gpus, links) == [(1, 2), (0,)]
    assert choose([1, 2], gpus, links) == [(0,), (1, 2)]


def test_an_instance_without_gpus_gets_none_and_a_negative_size_is_an_error() -> None:
    gpus, links = scenario("dual-3090-nv4")
    assert choose([0, 2], gpus, links) == [(), (0, 1)]
    assert choose([], gpus, links) == []
    assert choose([0], [], {}) == [()]
    with pytest.raises(ValueError, match="-1"):
        choose([-1], gpus, links)


def test_free_gpus_keep_their_own_indexes() -> None:
    gpus, links = scenario("octo-v100-dgx1")
    free = [gpus[index] for index in (7, 5, 4, 2)]
    assert choose([2], free, links) == [(4, 7)]


def test_a_half_seated_bridge_is_left_to_the_other_instance() -> None:
    links = joined(4, {"0-1": "NV3", "2-3": "NV4"}, "PHB")
    assert choose([2], cards(4), links) == [(2, 3)]
    assert choose([2, 2], cards(4), links) == [(0, 1), (2, 3)]


def test_three_gpus_with_one_pair() -> None:
    links = joined(3, {"1-2": "NV4"}, "PHB")
    assert choose([2], cards(3), links) == [(1, 2)]
    assert choose([1, 2], cards(3), links) == [(0,), (1, 2)]


@pytest.mark.parametrize(
    ("kept", "sizes", "wanted"),
    [
        ((0, 1, 2, 3, 4, 5), (4, 2), [(0, 1, 2, 3), (4, 5)]),
        # (4, 5) is NV1: leaving the quads whole is not asked, the weakest link is
        ((0, 1, 2, 3, 4, 5), (2, 2, 2), [(0, 4), (1, 5), (2, 3)]),
        ((0, 1, 2, 5, 6), (2, 2), [(1, 2), (3, 4)]),
        ((0, 1, 2, 5, 6), (3, 2), [(0, 1, 2), (3, 4)]),
        ((1, 3, 4, 6, 7), (3,), [(2, 3, 4)]),
    ],
)
def test_irregular_cubes(kept: tuple[int, ...], sizes: tuple[int, ...], wanted: list[tuple[int, ...]]) -> None:
    gpus, links = left_of("octo-v100-dgx1", kept)
    assert choose(sizes, gpus, links) == wanted


def test_a_dead_link_of_a_cube_moves_the_pairs_but_not_the_other_quad() -> None:
    gpus, links = scenario("octo-v100-dgx1")
    links = without(links, "0-3")
    assert choose([2] * 4, gpus, links) == [(0, 4), (1, 5), (2, 3), (6, 7)]
    assert choose([4], gpus, links) == [(4, 5, 6, 7)]


def test_unlike_cards_in_pairs() -> None:
    gpus = cards(2) + cards(2, "NVIDIA GeForce RTX 2080 Ti", (7, 5), first=2)
    links = joined(4, {"0-1": "PHB", "2-3": "NV2", "0-2": "PIX", "1-3": "PIX"})
    assert choose([2, 2], gpus, links) == [(0, 1), (2, 3)]
    assert choose([2], gpus, links) == [(2, 3)]
    assert choose([4], gpus, links) is None


def test_equal_memory_is_worth_less_than_a_link_and_more_than_an_index() -> None:
    gpus = cards(4)
    for index, memory in enumerate((11264, 22528, 11264, 22528)):
        gpus[index]["memory_mib"] = memory
    assert choose([2, 2], gpus, joined(4, {}, "PHB")) == [(1, 3), (0, 2)]
    assert choose([2, 2], gpus, joined(4, {"0-1": "PIX"}, "PHB")) == [(0, 1), (2, 3)]
    assert choose([1, 2], gpus, joined(4, {}, "PHB")) == [(0,), (1, 3)]


def test_ten_pcie_cards_on_two_switches() -> None:
    links = joined(10, among([range(5), range(5, 10)], "PXB") | among(PAIRS, "PIX") | among([(5, 6), (8, 9)], "PIX"))
    assert choose([4, 4, 2], cards(10), links) is not None
    assert choose([4, 4], cards(10), links) == [(0, 1, 2, 3), (5, 6, 8, 9)]
    assert choose([2] * 4, cards(10), links) == [(0, 1), (2, 3), (5, 6), (8, 9)]
    # five on one switch and three on the other have more links inside than four and four
    assert choose([8], cards(10), links) == [(0, 1, 2, 3, 4, 5, 6, 7)]


def test_sixteen_cards_on_switches() -> None:
    mesh = joined(16, {}, "NV6")
    assert choose([8, 8], cards(16), mesh) == [tuple(range(8)), tuple(range(8, 16))]
    fours = [range(start, start + 4) for start in (0, 4, 8, 12)]
    tree = joined(16, among([range(8), range(8, 16)], "NODE") | among(fours, "PIX"))
    assert choose([4] * 4, cards(16), tree) == [tuple(four) for four in fours]
    assert choose([2] * 8, cards(16), tree) == [(i, i + 1) for i in range(0, 16, 2)]
    assert choose([8, 4, 2, 1, 1], cards(16), tree) == [tuple(range(8)), (8, 9, 10, 11), (12, 13), (14,), (15,)]
    crossed = joined(16, {f"{i}-{i + 8}": "NV4" for i in range(8)})
    assert choose([2] * 8, cards(16), crossed) == [(i, i + 8) for i in range(8)]


LINKS = ["SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV2", "NV3", "NV4"]


@st.composite
def boxes(draw: st.DrawFn, least: int, most: int) -> tuple[list[int], Gpus, Links]:
    """Group sizes and a box: any links, up to two capabilities, up to three sizes of memory."""
    count = draw(st.integers(least, most))
    gpus = cards(count)
    capabilities = draw(st.sampled_from([1, 1, 2]))
    for gpu in gpus:
        gpu["compute_capability"] = [7, draw(st.integers(1, capabilities))]
        gpu["memory_mib"] = draw(st.sampled_from([11264, 11264, 22528]))
    kinds = draw(st.lists(st.sampled_from(LINKS), min_size=1, max_size=4))
    links = {f"{a}-{b}": draw(st.sampled_from(kinds)) for a, b in combinations(range(count), 2)}
    sizes = draw(st.lists(st.integers(1, max(1, count // 2 + 1)), min_size=1, max_size=4))
    return sizes, gpus, links


def every(sizes: Sequence[int], free: tuple[int, ...], gpus: Gpus) -> Iterator[list[tuple[int, ...]]]:
    """Every way to form the groups, tried one by one."""
    if not sizes:
        yield []
        return
    for group in combinations(free, sizes[0]):
        if len({tuple(gpus[i]["compute_capability"]) for i in group}) == 1:
            for rest in every(sizes[1:], tuple(i for i in free if i not in group), gpus):
                yield [group, *rest]


def goodness(found: Sequence[tuple[int, ...]], gpus: Gpus, links: Links) -> tuple[object, ...]:
    """The five criteria as they are documented, larger is better."""
    largest_first = sorted(found, key=lambda group: -len(group))
    inside = [[rank(links[f"{a}-{b}"]) for a, b in combinations(group, 2)] for group in found]
    memory = [[gpus[i]["memory_mib"] for i in group] for group in largest_first]
    return (
        min((min(ranks) for ranks in inside if ranks), default=0),
        sum(sum(ranks) for ranks in inside),
        -sum(len(set(group)) > 1 for group in memory),
        [sum(group) for group in memory],
        [[-i for i in group] for group in largest_first],
    )


@settings(max_examples=150, deadline=None)
@given(boxes(1, 6))
def test_up_to_six_gpus_it_is_the_best_of_all_choices(box: tuple[list[int], Gpus, Links]) -> None:
    sizes, gpus, links = box
    best = max(every(sizes, tuple(range(len(gpus))), gpus), key=lambda g: goodness(g, gpus, links), default=None)
    assert choose(sizes, gpus, links) == best


@settings(max_examples=25, deadline=None)
@given(boxes(7, 8), st.sampled_from([[2, 2, 2], [4, 4], [3, 3], [4, 2], [2, 2]]))
def test_eight_gpus_too(box: tuple[list[int], Gpus, Links], sizes: list[int]) -> None:
    _, gpus, links = box
    best = max(every(sizes, tuple(range(len(gpus))), gpus), key=lambda g: goodness(g, gpus, links), default=None)
    assert choose(sizes, gpus, links) == best


@settings(max_examples=40, deadline=None)
@given(boxes(9, 16), st.sampled_from([0, 200, groups.STEPS]))
def test_beyond_it_is_valid_and_always_the_same(box: tuple[list[int], Gpus, Links], steps: int) -> None:
    sizes, gpus, links = box
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "STEPS", steps)
        groups._choose.cache_clear()
        found = choose(sizes, gpus, links)
        groups._choose.cache_clear()
        assert choose(sizes, list(reversed(gpus)), links) == found
        groups._choose.cache_clear()
    if found is None:
        kinds = [tuple(gpu["compute_capability"]) for gpu in gpus]
        room = [kinds.count(kind) for kind in set(kinds)]
        assert not packs(sizes, room)
        return
    assert [len(group) for group in found] == sizes
    used = [i for group in found for i in group]
    assert len(set(used)) == len(used)
    assert all(list(group) == sorted(group) for group in found)
    assert all(len({tuple(gpus[i]["compute_capability"]) for i in group}) == 1 for group in found)


def packs(sizes: Sequence[int], room: list[int]) -> bool:
    if not sizes:
        return True
    return any(
        space >= sizes[0] and packs(sizes[1:], [*room[:i], space - sizes[0], *room[i + 1 :]])
        for i, space in enumerate(room)
    )


@pytest.mark.parametrize("steps", [0, groups.STEPS])
def test_the_swaps_find_pairs_and_switches_too(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "STEPS", steps)
    groups._choose.cache_clear()
    crossed = joined(12, {f"{i}-{i + 6}": "NV4" for i in range(6)}, "PHB")
    assert choose([2] * 6, cards(12), crossed) == [(i, i + 6) for i in range(6)]
    split = [(0, 3, 6, 9), (1, 4, 7, 10), (2, 5, 8, 11)]
    assert choose([4] * 3, cards(12), joined(12, among(split, "PIX"))) == split
    # the strongest links first would leave (0, 3) and (4, 7), which nothing joins
    chains = {f"{i}-{i + 1}": "NV2" for i in (0, 2, 4, 6)} | {"1-2": "NV4", "5-6": "NV4", "8-9": "NV2"}
    assert choose([2] * 5, cards(10), joined(10, chains)) == [(i, i + 1) for i in range(0, 10, 2)]
    groups._choose.cache_clear()


def test_boxes_that_are_alike_are_searched_once() -> None:
    groups._choose.cache_clear()
    for _ in range(3):
        choose([2, 2], *scenario("quad-3090-two-pairs"))
    assert (groups._choose.cache_info().misses, groups._choose.cache_info().hits) == (1, 2)
