"""The picture of a box: whole, well-formed, and true to what it shows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet.groups import choose
from gpufleet.picture import HIGH, WIDE, svg
from gpufleet.placing import around, ordered
from gpufleet.topology import weakest
from tests.unit.topologies import SCENARIOS, Gpus, Links, among, cards, joined, scenario

SVG = "{http://www.w3.org/2000/svg}"


@dataclass
class Shown:
    name: str
    gpus: tuple[int, ...]
    link: str | None = None
    port: int = 8000


def instances(sizes: list[int], gpus: Gpus, links: Links) -> list[Shown]:
    groups = choose(sizes, gpus, links) or []
    return [Shown(f"model-{i}", group, weakest(links, group), 8000 + i) for i, group in enumerate(groups)]


def parsed(name: str, gpus: Gpus, links: Links, shown: list[Shown]) -> ElementTree.Element:
    return ElementTree.fromstring(svg(name, gpus, links, shown))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def lines(root: ElementTree.Element) -> list[ElementTree.Element]:
    """The lines between GPUs; those of the legend have no x of their own."""
    return [line for line in root.iter(f"{SVG}line") if line.get("x1") != "0"]


@pytest.mark.parametrize("name", sorted(path.stem for path in SCENARIOS.glob("*.json")))
def test_every_gpu_link_and_instance_is_named(name: str) -> None:
    gpus, links = scenario(name)
    shown = instances([1] * len(gpus), gpus, links)
    root = parsed(name, gpus, links, shown)
    said = texts(root)
    assert said[0] == name
    for gpu in gpus:
        assert f"GPU {gpu['index']}" in said
    for each in shown:
        assert f"{each.name}: GPU {each.gpus[0]}, port {each.port}" in said
    for kind in {link for link in links.values() if link.startswith("NV")}:
        assert said.count(kind) == list(links.values()).count(kind)


def test_what_a_card_and_the_legend_say() -> None:
    gpus, links = scenario("mixed-3090-two-v100")
    said = texts(parsed("volta", gpus, links, [Shown("qwen", (1, 2), "NV6", 8001)]))
    assert {"RTX 3090 · 24 GiB", "V100-SXM2-32GB · 32 GiB", "sm86", "sm70"} <= set(said)
    assert said.count("qwen") == 2
    assert {"qwen: GPUs 1, 2, NV6, port 8001", "unused: GPU 0", "NVLink, the thicker the more links"} <= set(said)


def test_cards_of_an_instance_have_the_colour_of_its_legend() -> None:
    gpus, links = scenario("quad-3090-two-pairs")
    root = parsed("box", gpus, links, instances([2, 2], gpus, links))
    fills = [rect.get("fill") for rect in root.iter(f"{SVG}rect") if rect.get("rx") in ("10", "4")]
    on_cards, in_legend = fills[:4], fills[4:]
    assert on_cards == [in_legend[0], in_legend[1], in_legend[0], in_legend[1]]
    assert len(set(in_legend)) == 2


def test_more_instances_than_colours_are_told_apart_by_their_border() -> None:
    gpus, links = cards(16), joined(16, {}, "PHB")
    root = parsed("box", gpus, links, instances([1] * 16, gpus, links))
    legend = [rect for rect in root.iter(f"{SVG}rect") if rect.get("rx") == "4"]
    assert len({(rect.get("fill"), rect.get("stroke-dasharray")) for rect in legend}) == 16


def test_lines_are_thicker_for_more_links_and_thin_for_pcie() -> None:
    root = parsed("box", cards(3), joined(3, {"0-1": "NV4", "1-2": "NV3"}, "PHB"), [])
    widths = sorted(float(line.get("stroke-width", 0)) for line in lines(root))
    assert len(widths) == 3
    assert widths[0] < 2 < widths[1] < widths[2]


def test_pcie_is_drawn_where_it_is_little() -> None:
    gpus, links = cards(10), joined(10, among([range(5), range(5, 10)], "PXB"))
    assert len(lines(parsed("box", gpus, links, []))) == 0
    assert len(lines(parsed("box", gpus, links, instances([4, 4], gpus, links)))) == 12
    everything = parsed("box", gpus, links, instances([10], gpus, links))
    assert len(lines(everything)) == 0
    assert "PCIe links are not drawn; the weakest is SYS" in texts(everything)


def test_a_switch_is_one_node_not_a_line_for_each_pair() -> None:
    root = parsed("box", cards(16), joined(16, {}, "NV6"), [])
    assert len(lines(root)) == 16
    assert texts(root).count("NV6 each to each") == 1
    boards = parsed("box", cards(16), joined(16, among([range(8), range(8, 16)], "NV18")), [])
    assert texts(boards).count("NV18 each to each") == 2


def test_a_box_without_gpus_says_so() -> None:
    assert "This box has no GPU." in texts(parsed("bare", [], {}, []))
    assert "tiny: no GPU, port 8000" in texts(parsed("bare", [], {}, [Shown("tiny", ())]))


def test_names_are_escaped_and_nothing_runs_or_is_loaded() -> None:
    gpus = cards(1, name='<script>&"card"\x00')
    picture = svg("a<b>&\x07c", gpus, {}, [Shown("x</text>&y", (0,))])
    said = texts(ElementTree.fromstring(picture))
    assert "a<b>&c" in said
    assert "x</text>&y: GPU 0, port 8000" in said
    assert "<script" not in picture
    assert not re.search(r"href|url\(|@import", picture)


def test_long_names_lose_their_middle_on_the_card_and_nothing_in_the_legend() -> None:
    name = "a-very-long-name-of-an-instance-7"
    said = texts(parsed("box", cards(1), {}, [Shown(name, (0,))]))
    assert f"{name}: GPU 0, port 8000" in said
    assert [text for text in said if text.startswith("a-very") and "…" in text and text.endswith("stance-7")]


def test_what_the_driver_did_not_tell_is_a_question_mark() -> None:
    gpu = {"index": 0, "name": None, "compute_capability": None, "memory_mib": None}
    assert {"unknown card · ? GiB", "sm?"} <= set(texts(parsed("box", [gpu], {}, [])))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_box_has_a_picture_within_its_borders_and_always_the_same(data: st.DataObject) -> None:
    gpus = cards(data.draw(st.integers(0, 16)))
    kinds = data.draw(st.lists(st.sampled_from(["SYS", "PHB", "PIX", "NV1", "NV4"]), min_size=1, max_size=3))
    links = {f"{a}-{b}": data.draw(st.sampled_from(kinds)) for a, b in list(combinations(range(len(gpus)), 2))[:30]}
    shown = [Shown(data.draw(st.text(max_size=30)), (gpu["index"],)) for gpu in gpus[::2]]
    picture = svg("box", gpus, links, shown)
    assert svg("box", gpus, links, shown) == picture
    root = ElementTree.fromstring(picture)
    width, height = (float(root.get(side, 0)) for side in ("width", "height"))
    places = [
        [float(rect.get(key, 0)) for key in ("x", "y", "width", "height")]
        for rect in root.iter(f"{SVG}rect")
        if rect.get("rx") == "10"
    ]
    assert len(places) == len(gpus)
    for x, y, wide, high in places:
        assert 0 <= x <= width - wide and 0 <= y <= height - high
    for one, other in combinations(places, 2):
        apart = abs(one[0] - other[0]) >= one[2] or abs(one[1] - other[1]) >= one[3]
        assert apart, "two cards overlap"
    assert all(float(text.get("y", 0)) <= height for text in root.iter(f"{SVG}text"))


@pytest.mark.parametrize("count", range(1, 17))
def test_places_leave_room_between_boxes(count: int) -> None:
    points = around(range(count), WIDE, HIGH)
    for (ax, ay), (bx, by) in combinations(points.values(), 2):
        assert abs(ax - bx) > WIDE or abs(ay - by) > HIGH


def test_the_order_takes_crossings_out() -> None:
    lines = {(0, 2): 8, (1, 3): 8, (0, 1): 1}
    assert ordered([0, 1, 2, 3], lines, [[0, 1, 2, 3]]) == [0, 1, 3, 2]
    ring = {(0, 3): 8, (3, 1): 8, (1, 4): 8, (4, 2): 8, (2, 0): 8}
    order = ordered([0, 1, 2, 3, 4], ring, [[0, 1, 2, 3, 4]])
    places = {gpu: at for at, gpu in enumerate(order)}
    assert all(math.isclose(abs(places[a] - places[b]) % 3, 1) for a, b in ring), "neighbours, as 4 and 0 are"
    assert ordered([1, 0], {}, [[1, 0]]) == [0, 1]
