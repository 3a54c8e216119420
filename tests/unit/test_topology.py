"""Topology: the order of links, islands, and bridges with fewer links than they should have."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet.topology import (
    bridges,
    crosses_islands,
    degraded,
    islands,
    link_between,
    nvlinks,
    rank,
    unequal_memory,
    weakest,
)
from tests.unit.topologies import Links, among, cards, joined, left_of, scenario, without

QUADS = [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_links_are_ordered_from_nvlinks_by_number_down_to_sys() -> None:
    best_first = ["NV18", "NV12", "NV4", "NV2", "NV1", "PIX", "PXB", "PHB", "NODE", "SYS"]
    assert sorted(best_first, key=rank, reverse=True) == best_first
    assert rank("NV4") == 2 * rank("NV2")
    assert rank("NV1") > 120 * rank("PIX"), "all pairs of 16 GPUs"
    assert [nvlinks(link) for link in ("NV12", "NV1", "PIX", "SYS")] == [12, 1, 0, 0]


@pytest.mark.parametrize("word", ["", "NV", "NV0", "nv2", "X", "NVL", "NV-1"])
def test_a_word_that_is_no_link_is_an_error(word: str) -> None:
    with pytest.raises(ValueError, match="NODE"):
        rank(word)


def test_link_between_and_weakest() -> None:
    links = {"0-1": "NV2", "1-10": "PHB"}
    assert link_between(links, 1, 0) == "NV2"
    assert link_between(links, 10, 1) == "PHB"
    assert link_between(links, 0, 10) == "SYS", "nobody could tell"
    assert weakest(links, (10, 1, 0)) == "SYS"
    assert weakest(links, (1, 0)) == "NV2"
    assert weakest(links, (0,)) is None
    assert weakest(links, ()) is None


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("cpu-only", []),
        ("single-2080ti", [(0,)]),
        ("dual-2080ti-nv2", [(0, 1)]),
        ("dual-2080ti-pcie", [(0,), (1,)]),
        ("dual-5090-phb", [(0,), (1,)]),
        ("mixed-3090-two-v100", [(0,), (1, 2)]),
        ("quad-3090-two-pairs", [(0, 2), (1, 3)]),
        ("quad-v100-mesh", [(0, 1, 2, 3)]),
        ("quad-v100-ring", [(0, 1), (2, 3)]),
        ("octo-v100-dgx1", QUADS),
    ],
)
def test_islands_of_the_scenarios(name: str, wanted: list[tuple[int, ...]]) -> None:
    assert islands(*scenario(name)) == wanted


@pytest.mark.parametrize(
    ("kept", "wanted"),
    [
        ((0, 1, 2, 3, 4, 5), [(0, 1, 2, 3), (4, 5)]),
        ((0, 1, 2, 4, 5), [(0, 1, 2), (3, 4)]),
        ((0, 1, 2, 3, 7), [(0, 1, 2, 3), (4,)]),
        ((1, 3, 4, 6, 7), [(0, 1), (2, 3, 4)]),
    ],
)
def test_islands_of_irregular_cubes(kept: tuple[int, ...], wanted: list[tuple[int, ...]]) -> None:
    assert islands(*left_of("octo-v100-dgx1", kept)) == wanted


def test_islands_around_a_dead_link() -> None:
    gpus, links = scenario("octo-v100-dgx1")
    assert islands(gpus, without(links, "0-4")) == QUADS
    # three either way: larger ones rather than (0, 1), (2, 3); and (1, 2, 3) has more links than (0, 1, 2)
    assert islands(gpus, without(links, "0-3")) == [(0,), (1, 2, 3), (4, 5, 6, 7)]


def test_switches_make_one_island() -> None:
    for count in (8, 16):
        assert islands(cards(count), joined(count, {}, "NV6")) == [tuple(range(count))]
    assert islands(cards(16), without(joined(16, {}, "NV6"), "3-9")) == [
        (0, 1, 2, 3, 4, 5, 6, 7, 8, *range(10, 16)),
        (9,),
    ]


def test_islands_never_mix_capabilities_and_keep_indexes() -> None:
    gpus = cards(2) + cards(2, "Tesla V100-SXM2-32GB", (7, 0), first=5)
    links = among([(0, 1, 5, 6)], "NV4")
    assert islands(gpus, links) == [(0, 1), (5, 6)]
    assert islands(gpus[1:], links) == [(1,), (5, 6)]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 7), st.data())
def test_islands_are_the_fewest_cliques(count: int, data: st.DataObject) -> None:
    links: Links = {
        f"{a}-{b}": data.draw(st.sampled_from(["SYS", "PIX", "NV1", "NV2"])) for a, b in combinations(range(count), 2)
    }
    found = islands(cards(count), links)
    assert sorted(gpu for island in found for gpu in island) == list(range(count))
    splits = [split for split in partitions(list(range(count))) if all(clique(group, links) for group in split)]
    assert cost(found, links) == min(cost(split, links) for split in splits)


def partitions(items: list[int]) -> list[list[tuple[int, ...]]]:
    if not items:
        return [[]]
    first, rest = items[0], items[1:]
    return [
        [(first, *others), *split]
        for size in range(len(items))
        for others in combinations(rest, size)
        for split in partitions([item for item in rest if item not in others])
    ]


def clique(group: tuple[int, ...], links: Links) -> bool:
    return all(links[f"{a}-{b}"].startswith("NV") for a, b in combinations(group, 2))


def cost(split: list[tuple[int, ...]], links: Links) -> tuple[int, list[int], int]:
    inside = [rank(links[f"{a}-{b}"]) for group in split for a, b in combinations(group, 2)]
    return len(split), sorted(-len(group) for group in split), -sum(inside)


def test_unequal_memory_and_crossing_islands() -> None:
    gpus = cards(3)
    gpus[2]["memory_mib"] = 12288
    assert unequal_memory(gpus, (0, 2))
    assert not unequal_memory(gpus, (0, 1))
    assert not unequal_memory(gpus, (2,))
    assert not unequal_memory(gpus, ())
    assert crosses_islands((0, 4), QUADS)
    assert not crosses_islands((4, 6), QUADS)
    assert not crosses_islands((), QUADS)


def test_bridges() -> None:
    assert bridges({"2-10": "NV4", "0-1": "PHB", "1-3": "NV3", "0-2": "NV4"}) == {"0-2": 4, "1-3": 3, "2-10": 4}


NAME = "NVIDIA GeForce RTX 3090"
TI = "NVIDIA GeForce RTX 2080 Ti"


def test_a_half_seated_bridge_is_found_by_its_sibling_or_by_what_is_expected() -> None:
    links = joined(4, {"0-2": "NV4", "1-3": "NV3"}, "PHB")
    assert degraded(links, cards(4), None) == [
        f"GPUs 1 and 3 ({NAME}): 3 NVLinks, GPUs 0 and 2 of the same kind have 4"
    ]
    assert degraded(links, cards(4), 4) == [f"GPUs 1 and 3 ({NAME}): 3 NVLinks, 4 are expected"]
    assert degraded(links, cards(4), 3) == []
    assert degraded({"0-1": "NV1"}, cards(2, TI), 2) == [f"GPUs 0 and 1 ({TI}): 1 NVLink, 2 are expected"]
    assert degraded({"0-1": "NV1"}, cards(2, TI), None) == [], "nothing to compare it with"


def test_pairs_of_other_cards_are_no_measure() -> None:
    gpus = cards(2) + cards(2, TI, (7, 5), first=2)
    assert degraded(joined(4, {"0-1": "NV4", "2-3": "NV2"}), gpus, None) == []


def test_a_missing_bridge_counts_as_no_links() -> None:
    assert degraded({"0-1": "PHB"}, cards(2), 4) == [f"GPUs 0 and 1 ({NAME}): no NVLink (PHB), 4 are expected"]
    assert degraded({"0-1": "PHB"}, cards(2), None) == []
    assert degraded({"0-1": "PHB"}, cards(2), 0) == []
    links = joined(4, {"0-2": "NV4", "1-3": "NODE"})
    assert degraded(links, cards(4), 4) == [f"GPUs 1 and 3 ({NAME}): no NVLink (NODE), 4 are expected"]
    assert degraded(joined(4, {}), cards(4), 4) == [
        f"GPUs 0, 1, 2, 3 ({NAME}): no NVLink to any other GPU, 4 are expected"
    ]


def test_a_card_that_can_have_no_partner_misses_none() -> None:
    assert degraded(joined(3, {"0-1": "NV4"}), cards(3), 4) == []
    gpus, links = scenario("mixed-3090-two-v100")
    assert degraded(links, gpus, 6) == []
    other = cards(2) + cards(2, "NVIDIA GeForce RTX 4090", (8, 9), first=2)
    assert degraded(joined(4, {"0-1": "NV4"}), other, 4) == []
    assert degraded({}, [], 4) == []


@pytest.mark.parametrize("name", ["octo-v100-dgx1", "quad-v100-mesh", "quad-v100-ring"])
def test_uneven_meshes_are_as_their_boards_are(name: str) -> None:
    gpus, links = scenario(name)
    assert degraded(links, gpus, None) == []
    assert degraded(links, gpus, 2) == []


def test_a_card_of_a_mesh_without_a_full_pair_is_named() -> None:
    gpus, links = scenario("quad-v100-mesh")
    name = gpus[0]["name"]
    assert degraded({**links, "0-3": "NV1"}, gpus, 2) == [
        f"GPU 0 ({name}): at most 1 NVLink to another GPU, 2 are expected"
    ]
    lost = {pair: "SYS" if "3" in pair else link for pair, link in links.items()}
    assert degraded(lost, gpus, 2) == [
        f"GPU 0 ({name}): at most 1 NVLink to another GPU, 2 are expected",
        f"GPU 3 ({name}): at most 0 NVLinks to another GPU, 2 are expected",
    ]
    switch = {pair: "NV17" if "5" in pair else link for pair, link in joined(8, {}, "NV18").items()}
    assert [line[:5] for line in degraded(switch, cards(8), 18)] == ["GPU 5"]


def test_all_links_of_a_card_count_where_no_pair_has_as_many_as_expected() -> None:
    gpus, links = scenario("octo-v100-dgx1")
    assert degraded(links, gpus, 6) == []
    pair = next(pair for pair, link in links.items() if link == "NV2")
    assert [line.split(" (")[0] for line in degraded({**links, pair: "SYS"}, gpus, 6)] == [
        f"GPU {index}" for index in pair.split("-")
    ]
    assert "4 NVLinks in all, 6 are expected" in degraded({**links, pair: "SYS"}, gpus, 6)[0]
    switch = {pair: "NV5" if "2" in pair else "NV6" for pair in joined(4, {})}
    assert [line[:5] for line in degraded(switch, cards(4), 6)] == ["GPU 2"]


def test_links_to_cards_that_are_not_asked_about_do_not_count() -> None:
    gpus, links = scenario("quad-3090-two-pairs")
    assert degraded(links, [gpus[0], gpus[2]], 4) == []
    assert degraded({**links, "1-3": "NV3"}, [gpus[0], gpus[2]], None) == []


def test_a_large_tangle_is_split_without_trying_all() -> None:
    gpus = [{"index": index, "name": "a card", "compute_capability": [8, 0]} for index in range(60)]
    # rings of five beside each other, every third pair across them joined: far too many splits to try
    joined = {(a, b) for a, b in combinations(range(60), 2) if a // 5 == b // 5 or (a * b + a + b) % 3}
    found = islands(gpus, {f"{a}-{b}": "NV1" for a, b in joined})
    assert sorted(gpu for group in found for gpu in group) == list(range(60))
    assert all(pair in joined for group in found for pair in combinations(group, 2))
    assert len(found) < 30
