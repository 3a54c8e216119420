"""What counts as another hardware, and in which words it is said."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpufleet.hardware import differences
from tests.unit.fleets import cpu_facts, gpu_facts


def box(count: int = 2, **more: Any) -> dict[str, Any]:
    facts = gpu_facts(count=count, **more)
    for gpu in facts["gpus"]:
        gpu["bus_id"] = f"0000000{gpu['index'] + 1}:00:00.0"
    facts.update(machine_id="a" * 32, cpu={"cores": 8, "threads": 16}, memory={"total_mib": 65536})
    return facts


def without(facts: dict[str, Any], index: int) -> dict[str, Any]:
    """The same box with a card taken out: those after it move up by one, their links with them."""
    left = copy.deepcopy(facts)
    names = [gpu["index"] for gpu in left["gpus"] if gpu["index"] != index]
    left["gpus"] = [{**left["gpus"][old], "index": new} for new, old in enumerate(names)]
    left["links"] = {
        f"{a}-{b}": facts["links"][f"{names[a]}-{names[b]}"]
        for a in range(len(names))
        for b in range(a + 1, len(names))
    }
    return left


def changed(**values: Any) -> dict[str, Any]:
    return {**box(), **values}


def test_the_same_box_is_the_same() -> None:
    assert differences(box(), box()) == []
    assert differences(cpu_facts(), cpu_facts()) == []


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (changed(machine_id="b" * 32), f"machine-id {'a' * 32} before, {'b' * 32} now"),
        (changed(cpu={"cores": 6, "threads": 12}), "CPU: 8 cores before, 6 now"),
        (changed(cpu={"cores": 8, "threads": 8}), "CPU: 16 threads before, 8 now"),
        (changed(memory={"total_mib": 49152}), "RAM: 65536 MiB before, 49152 MiB now"),
        (changed(links={"0-1": "NV1"}), "0-1: NV2 before, NV1 now"),
        (changed(links={"0-1": "PHB"}), "0-1: NV2 before, PHB now"),
        (changed(links={}), "0-1: NV2 before, not told now"),
        (without(box(), 1), "GPU 1 (00000002:00:00.0), a card GPU-1, is gone"),
        (box(3, link="NV2"), "GPU 2 (00000003:00:00.0), a card GPU-2, is new"),
        (changed(driver=None, gpus=[], links={}), "the NVIDIA driver is gone, and with it the sight of 2 GPUs"),
    ],
)
def test_one_line_for_what_changed(new: dict[str, Any], says: str) -> None:
    (line,) = differences(box(), new)
    assert says in line


def test_another_card_in_its_place() -> None:
    new = box()
    new["gpus"][1].update(uuid="GPU-x", name="another card")
    assert differences(box(), new) == ["GPU 1 (00000002:00:00.0): a card GPU-1 before, another card GPU-x now"]


def test_a_card_in_another_place_and_with_other_memory() -> None:
    new = box()
    new["gpus"][0].update(bus_id="00000009:00:00.0", memory_mib=11264)
    assert differences(box(), new) == [
        "GPU 0 (a card GPU-0): at 00000001:00:00.0 before, at 00000009:00:00.0 now",
        "GPU 0 (a card GPU-0): 22528 MiB before, 11264 MiB now",
    ]


def test_links_are_those_of_the_cards_and_not_of_their_numbers() -> None:
    four = box(4)
    four["links"] = {"0-1": "NV2", "0-2": "PHB", "0-3": "PHB", "1-2": "PHB", "1-3": "PHB", "2-3": "NV2"}
    assert len(differences(four, without(four, 0))) == 1
    new = without(four, 0)  # cards 1, 2, 3 are 0, 1, 2 now; the bridge between 2 and 3 is 1-2
    new["links"]["1-2"] = "PHB"
    assert differences(four, new)[1:] == ["2-3: NV2 before, PHB now"]


@pytest.mark.parametrize(
    "new",
    [
        changed(memory={"total_mib": 65536 - 4000}),  # what a kernel or an integrated GPU keeps
        changed(driver={"version": "590.1", "cuda": "13.1", "module": None}),
        changed(machine_id=None, cpu={}, memory={}),  # a source that failed
        changed(gpus=[], links={}, errors=[{"source": "nvml", "message": "Driver/library version mismatch"}]),
    ],
)
def test_what_is_no_change_of_hardware(new: dict[str, Any]) -> None:
    assert differences(box(), new) == []


def test_cards_seen_for_the_first_time_once_a_driver_is_there() -> None:
    assert differences({**box(), "driver": None, "gpus": [], "links": {}}, box()) == []


def test_cards_that_a_working_driver_no_longer_shows() -> None:
    assert len(differences(box(), changed(gpus=[], links={}))) == 2
