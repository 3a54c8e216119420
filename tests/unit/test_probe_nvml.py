"""The cards through a made-up NVML: what no scenario of the lab shows (switches, calls that fail one by one)."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpufleet.facts import problems
from hostkit import nvml, probe
from hostkit.roots import Roots
from tests.unit.boxes import Told
from tests.unit.fake_nvml import FakeNvml, error


def describe(fake: Any, base: Any = "/nowhere") -> dict[str, Any]:
    return nvml.describe(fake, Roots(str(base)), Told())


def test_inactive_links_do_not_count() -> None:
    facts = describe(FakeNvml([[1, None, 1, None], [0, 0, None, None]]))
    assert facts["links"] == {"0-1": "NV2"}
    assert facts["errors"] == []


def test_cards_on_a_switch_have_the_links_both_have() -> None:
    facts = describe(FakeNvml([["switch"] * 18, ["switch"] * 17 + [None], []]))
    assert facts["links"] == {"0-1": "NV17", "0-2": "PHB", "1-2": "PHB"}


def test_a_switch_that_only_its_bus_id_tells() -> None:
    broken = {"nvmlDeviceGetNvLinkRemoteDeviceType": error(13)}
    facts = describe(FakeNvml([["switch"] * 6, ["switch"] * 6], broken=broken))
    assert facts["links"] == {"0-1": "NV6"}
    assert facts["errors"] == []


@pytest.mark.parametrize(
    ("level", "name"),
    [(0, "PIX"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS")],
)
def test_ancestors_in_the_words_of_nvidia_smi(level: int, name: str) -> None:
    assert describe(FakeNvml([[], []], ancestor=level))["links"] == {"0-1": name}


def test_a_card_in_full(tmp_path: Path) -> None:
    (tmp_path / "proc/30").mkdir(parents=True)
    (tmp_path / "proc/30/comm").write_text("VLLM::EngineCor\n")
    facts = describe(FakeNvml([[1, None], ["switch", "other"]]), tmp_path)
    link = {"active": True, "version": 3}
    assert facts["errors"] == []
    assert facts["driver"] == {"version": "595.45.04", "cuda": "12.8"}
    assert facts["gpus"][0] == {
        "index": 0,
        "uuid": "GPU-0",
        "name": "card 0",
        "compute_capability": [7, 5],
        "memory_mib": 24576,
        "memory_used_mib": 1024,
        "bus_id": "00000000:01:00.0",
        "display_active": True,
        "pcie": {"gen": 1, "gen_max": 3, "width": 8, "width_max": 16},
        "power": {"limit_w": 200, "default_w": 260, "min_w": 100, "max_w": 280},
        "persistence": False,
        "ecc": False,
        "mig": True,
        "nvlinks": [
            {**link, "link": 0, "speed_mbps": 25781, "remote": "gpu", "remote_bus_id": "00000000:21:00.0"},
            {"link": 1, "active": False, "version": 3, "speed_mbps": None, "remote": None, "remote_bus_id": None},
        ],
        "processes": [
            {"pid": 10, "memory_mib": 8, "name": None, "kind": "graphics", "unit": None},
            {"pid": 20, "memory_mib": None, "name": None, "kind": "compute", "unit": None},
            {"pid": 30, "memory_mib": 5120, "name": "VLLM::EngineCor", "kind": "compute", "unit": None},
        ],
    }
    assert facts["gpus"][1]["nvlinks"] == [
        {**link, "link": 0, "speed_mbps": 25781, "remote": "switch", "remote_bus_id": None},
        {**link, "link": 1, "speed_mbps": 25782, "remote": "other", "remote_bus_id": "00000004:00:00.0"},
    ]
    assert (facts["p2p_read"], facts["p2p_write"]) == ({"0-1": "OK"}, {"0-1": "NS"})


def test_ancestors_of_linked_cards_too() -> None:
    facts = describe(FakeNvml([[1], [0], []], ancestor=40))
    assert facts["links"] == {"0-1": "NV1", "0-2": "NODE", "1-2": "NODE"}
    assert facts["ancestors"] == {"0-1": "NODE", "0-2": "NODE", "1-2": "NODE"}


def test_speed_by_the_fields_of_older_drivers() -> None:
    fake = FakeNvml([[1, 1], [0, 0]])

    def fields(card: int, wanted: list[tuple[int, int]]) -> list[Any]:
        return [
            SimpleNamespace(nvmlReturn=3, valueType=0, value=None)
            if field == 164
            else SimpleNamespace(nvmlReturn=0, valueType=3, value=SimpleNamespace(ullVal=1000 + field))
            for field, _ in wanted
        ]

    fake.__dict__["nvmlDeviceGetFieldValues"] = fields
    assert [link["speed_mbps"] for link in describe(fake)["gpus"][0]["nvlinks"]] == [1084, 1085]


FUNCTIONS = sorted(name for name in dir(FakeNvml) if re.fullmatch("nvml(Device|System).*", name))
FAILURES = [
    error(1),
    error(2),
    error(15),
    error(999),
    ctypes.ArgumentError("argument 3: wrong type"),
    ValueError("bad"),
]
ENDS: list[list[Any]] = [[1, None], [0, "switch"], []]


@pytest.mark.parametrize("failure", FAILURES, ids=repr)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_any_call_that_fails_is_named_and_takes_nothing_with_it(function: str, failure: Exception) -> None:
    facts = describe(FakeNvml(ENDS, broken={function: failure}))
    beyond = function == "nvmlDeviceGetNvLinkState" and getattr(failure, "value", None) == 2
    assert [message.split(":")[0] for message in facts["errors"]] == ([] if beyond else [function])
    if function in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
        assert facts["gpus"] == []
        return
    whole = describe(FakeNvml(ENDS))
    assert {gpu["index"] for gpu in facts["gpus"]} == {0, 1, 2}
    for gpu, expected in zip(facts["gpus"], whole["gpus"], strict=True):
        assert gpu.keys() == expected.keys()
        lost = {key for key in expected if gpu[key] != expected[key]}
        assert lost <= LOST.get(
            function, {"pcie"} if "Pcie" in function else {"power"} if "Power" in function else set()
        )
    answer = {**probe._nothing(), **facts, "driver": None, "errors": []}
    assert problems(answer) == []


LOST = {
    "nvmlDeviceGetUUID": {"uuid"},
    "nvmlDeviceGetName": {"name"},
    "nvmlDeviceGetCudaComputeCapability": {"compute_capability"},
    "nvmlDeviceGetMemoryInfo": {"memory_mib", "memory_used_mib"},
    "nvmlDeviceGetPciInfo": {"bus_id"},
    "nvmlDeviceGetDisplayActive": {"display_active"},
    "nvmlDeviceGetPersistenceMode": {"persistence"},
    "nvmlDeviceGetEccMode": {"ecc"},
    "nvmlDeviceGetMigMode": {"mig"},
    "nvmlDeviceGetNvLinkState": {"nvlinks"},
    "nvmlDeviceGetNvLinkVersion": {"nvlinks"},
    "nvmlDeviceGetNvLinkRemoteDeviceType": {"nvlinks"},
    "nvmlDeviceGetNvLinkRemotePciInfo": {"nvlinks"},
    "nvmlDeviceGetFieldValues": {"nvlinks"},
    "nvmlDeviceGetComputeRunningProcesses": {"processes"},
    "nvmlDeviceGetGraphicsRunningProcesses": {"processes"},
}


@pytest.mark.parametrize("code", [3, 13])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_a_card_or_driver_does_not_have_is_no_error(function: str, code: int) -> None:
    assert describe(FakeNvml(ENDS, broken={function: error(code)}))["errors"] == []


def test_what_matters_most_is_told_first() -> None:
    told: list[dict[str, Any]] = []
    nvml.describe(FakeNvml(ENDS), Roots("/nowhere"), Told(told))
    assert told[0]["driver"]["version"] == "595.45.04" and told[0]["gpus"] == []
    assert [[gpu["uuid"] for gpu in each["gpus"]] for each in told[1:5]] == [
        [None, None, None],
        ["GPU-0", None, None],
        ["GPU-0", "GPU-1", None],
        ["GPU-0", "GPU-1", "GPU-2"],
    ]
    when = {
        key: next(at for at, each in enumerate(told) if found(each))
        for key, found in {
            "nvlinks": lambda each: any(gpu["nvlinks"] for gpu in each["gpus"]),
            "power": lambda each: any(gpu["power"]["limit_w"] for gpu in each["gpus"]),
            "links": lambda each: "links" in each,
            "p2p": lambda each: "p2p_write" in each,
            "processes": lambda each: any(gpu["processes"] for gpu in each["gpus"]),
        }.items()
    }
    assert sorted(when, key=lambda key: when[key]) == list(when)
    assert len(set(when.values())) == len(when)
    for each in told:
        assert problems({**probe._nothing(), **each, "driver": None, "errors": []}) == []


def test_a_lost_card_leaves_the_others_under_their_own_numbers() -> None:
    fake = FakeNvml([[], [], []])

    def handle(index: int) -> int:
        if index == 1:
            raise error(15)
        return index

    fake.__dict__["nvmlDeviceGetHandleByIndex"] = handle
    facts = describe(fake)
    assert [gpu["index"] for gpu in facts["gpus"]] == [0, 2]
    assert facts["links"] == {"0-2": "PHB"}
    assert facts["errors"] == ["nvmlDeviceGetHandleByIndex: GPU is lost (GPU 1)"]


def test_an_error_names_the_cards_it_came_from() -> None:
    fake = FakeNvml([[], [], []], broken={"nvmlDeviceGetTopologyCommonAncestor": error(999)})
    whole = fake.nvmlDeviceGetName

    def name(card: int) -> str:
        if card != 1:
            raise error(15)
        return whole(card)

    fake.__dict__["nvmlDeviceGetName"] = name
    assert describe(fake)["errors"] == [
        "nvmlDeviceGetName: GPU is lost (GPU 0, GPU 2)",
        "nvmlDeviceGetTopologyCommonAncestor: Unknown Error (GPU 0-1, GPU 0-2, GPU 1-2)",
    ]
