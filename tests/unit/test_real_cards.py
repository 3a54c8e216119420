"""A real pair of NVLink cards: what the probe answered there is what nvidia-smi printed beside it, and what is planned.

Two H200 joined through a switch, driver 580.159.04, NVML from nvidia-ml-py; UUIDs and the kernel's name replaced.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpufleet import catalogue, paths
from gpufleet.models import Model
from gpufleet.plan import Box, BoxPlan, plan_box
from gpufleet.topology import islands
from gpufleet.traits import traits_of
from tests.unit.fleets import product_stacks

DATA = Path(__file__).resolve().parents[1] / "data"
FACTS: dict[str, Any] = json.loads((DATA / "facts" / "dual-h200-switch.json").read_text(encoding="utf-8"))
PRINTED = (DATA / "nvidia-smi" / "dual-h200-switch.txt").read_text(encoding="utf-8")


def printed(call: str) -> str:
    """What one call of nvidia-smi printed, without the underlining it puts even into files."""
    text = PRINTED.split(f"=== nvidia-smi {call}\n", 1)[1].split("=== nvidia-smi", 1)[0]
    return re.sub(r"\x1b\[\d*m", "", text)


def cell(call: str) -> str:
    """The word in the row of GPU 0 and the column of GPU 1."""
    row = next(line for line in printed(call).splitlines() if re.match(r"\s*GPU0\s+X", line))
    return row.split()[2]


def per_card(call: str, pattern: str) -> list[list[str]]:
    """What stands in each card's lines of a list."""
    return [re.findall(pattern, part) for part in re.split(r"^GPU \d+:", printed(call), flags=re.MULTILINE)[1:]]


def test_no_call_failed() -> None:
    assert FACTS["errors"] == []


def test_links_and_p2p_are_what_nvidia_smi_prints() -> None:
    assert FACTS["links"] == {"0-1": cell("topo -m")} == {"0-1": "NV18"}
    assert FACTS["p2p_read"] == {"0-1": cell("topo -p2p r")}
    assert FACTS["p2p_write"] == {"0-1": cell("topo -p2p w")}
    assert cell("topo -p2p n") == "OK"


def test_every_link_has_the_speed_that_nvidia_smi_prints() -> None:
    speeds = per_card("nvlink -s", r"Link (\d+): ([\d.]+) GB/s")
    assert [[(str(each["link"]), each["speed_mbps"]) for each in gpu["nvlinks"]] for gpu in FACTS["gpus"]] == [
        [(link, round(float(speed) * 1000)) for link, speed in card] for card in speeds
    ]
    assert all(each["active"] for gpu in FACTS["gpus"] for each in gpu["nvlinks"])


def test_links_end_at_a_switch_and_at_no_card() -> None:
    ends = per_card("nvlink -R", r"Link \d+: Remote Device ([0-9A-F:.]+):")
    assert [len(card) for card in ends] == [len(gpu["nvlinks"]) for gpu in FACTS["gpus"]] == [18, 18]
    assert {end for card in ends for end in card} == {"FFFFFFFF:FF:FF.0"}
    assert {(each["remote"], each["remote_bus_id"]) for gpu in FACTS["gpus"] for each in gpu["nvlinks"]} == {
        ("switch", None)
    }


def planned(**data: Any) -> BoxPlan:
    models = catalogue.load(Model, "model", paths.model_folders())
    return plan_box(Box("box", {"serve": ["qwen3.8-27b-awq"], **data}), FACTS, {}, product_stacks(), models)


def test_they_are_one_island() -> None:
    assert islands(FACTS["gpus"], FACTS["links"]) == [(0, 1)]
    assert traits_of(FACTS) == ["sm90", "nvlink", "sm90_nvlink", "nv18", "gpus2"]


@pytest.mark.parametrize(
    ("data", "gpus", "link"),
    [({}, [(0,), (1,)], None), ({"tensor_parallel_size": 2}, [(0, 1)], "NV18")],
)
def test_a_card_that_holds_the_model_serves_it_alone(
    data: dict[str, Any], gpus: list[tuple[int, ...]], link: str | None
) -> None:
    instances = planned(**data).instances
    assert [item.gpus for item in instances] == gpus
    assert {item.link for item in instances} == {link}
    assert all(item.memory and item.memory.fits and item.stack.name == "vllm-0.27.1" for item in instances)
