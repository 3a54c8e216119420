"""Every topology through the probe, the real nvidia-ml-py and the compiled stand-in (which fetches NVIDIA's header)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lab import nvml

pytestmark = pytest.mark.lab
SCRIPT = """
import json, sys
from hostkit import probe
print(json.dumps(probe.run({}, nvml_seconds=float(sys.argv[1]))))
"""
WITH_GPUS = [name for name in nvml.names() if nvml.scenario(name)["gpus"]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


def ask(root: Path, script: str, *arguments: str) -> Any:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(root / "usr/lib/x86_64-linux-gnu"),
        "GPUFLEET_LAB_NVML": str(root / "etc/gpufleet-lab/nvml.conf"),
        "PYTHONPATH": str(Path(nvml.__file__).parent.parent),
    }
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def facts(root: Path, scenario: dict[str, Any], seconds: float = 20) -> dict[str, Any]:
    nvml.install(root, scenario)
    answer: dict[str, Any] = ask(root, SCRIPT, str(seconds))["facts"]
    return answer


@pytest.mark.parametrize("name", WITH_GPUS)
def test_the_probe_sees_the_scenario(root: Path, name: str) -> None:
    scenario = nvml.scenario(name)
    seen = facts(root, scenario)
    assert seen["errors"] == []
    assert seen["driver"]["version"] == scenario["driver"]
    assert seen["links"] == scenario["links"]
    assert set(seen["p2p_read"]) == set(scenario["links"])
    assert scenario.get("p2p_read", {}).items() <= seen["p2p_read"].items()
    for gpu, expected in zip(seen["gpus"], scenario["gpus"], strict=True):
        assert {key: gpu[key] for key in expected} == expected
        assert gpu["uuid"] == nvml.gpu_uuid(scenario, gpu["index"])
        assert (gpu["display_active"], gpu["processes"]) == (False, [])


def test_a_box_without_cards_gets_no_library(root: Path) -> None:
    library = root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    nvml.install(root, nvml.scenario("single-2080ti"))
    assert library.exists()
    nvml.install(root, nvml.scenario("cpu-only"))
    assert not library.exists()
    seen = ask(root, SCRIPT, "20")["facts"]
    assert (seen["driver"], seen["gpus"], seen["errors"]) == (None, [], [])


def test_processes_and_their_memory(root: Path) -> None:
    scenario = nvml.scenario("dual-3090-nv4")
    nvml.install(root, scenario)
    (root / "etc/gpufleet-lab/processes").write_text("1 4711 2048\n1 4712 1024\n")
    seen = ask(root, SCRIPT, "20")["facts"]["gpus"]
    assert (seen[0]["memory_used_mib"], seen[0]["processes"]) == (0, [])
    assert seen[1]["memory_used_mib"] == 3072
    assert seen[1]["processes"] == [{"pid": 4711, "memory_mib": 2048}, {"pid": 4712, "memory_mib": 1024}]


def test_links_through_a_switch(root: Path) -> None:
    scenario = {**nvml.scenario("dual-3090-nv4"), "nvswitch": True}
    assert facts(root, scenario)["links"] == {"0-1": "NV4"}


def test_driver_and_library_at_odds(root: Path) -> None:
    seen = facts(root, {**nvml.scenario("single-2080ti"), "faults": {"nvmlInit": 18}})
    assert seen["driver"] is not None and seen["driver"]["cuda"] is None
    assert seen["gpus"] == []
    assert [error["source"] for error in seen["errors"]] == ["nvml"]
    assert "mismatch" in seen["errors"][0]["message"].lower()


def test_a_hanging_driver_costs_its_own_facts_only(root: Path) -> None:
    started = time.monotonic()
    seen = facts(root, {**nvml.scenario("single-2080ti"), "faults": {"nvmlDeviceGetCount": "hang"}}, seconds=0.5)
    assert time.monotonic() - started < 10
    assert seen["errors"] == [{"source": "nvml", "message": "no answer within 0.5 s"}]
    assert seen["driver"] is not None and seen["cpu"]["threads"] >= 1


def test_one_failing_call_loses_nothing_else(root: Path) -> None:
    faults = {"nvmlDeviceGetName": 3, "nvmlDeviceGetMemoryInfo_v2": 13, "nvmlDeviceGetTopologyCommonAncestor": 999}
    seen = facts(root, {**nvml.scenario("mixed-3090-two-v100"), "faults": faults})
    assert [gpu["name"] for gpu in seen["gpus"]] == [None] * 3
    assert seen["gpus"][1]["memory_mib"] == 32768
    assert seen["links"] == {"1-2": "NV6"}
    assert [error["source"] for error in seen["errors"]] == ["nvml"]


QUERIES = """
import json, pynvml as n
n.nvmlInit()
def code(function, *arguments):
    try:
        return function(*arguments)
    except n.NVMLError as error:
        return "error %d" % error.value
first = n.nvmlDeviceGetHandleByIndex(0)
uuid = n.nvmlDeviceGetUUID(first)
print(json.dumps({
    "cuda": n.nvmlSystemGetCudaDriverVersion(),
    "by_uuid": n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(uuid)),
    "by_bus": n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(b"0000:01:00.0")),
    "no_index": code(n.nvmlDeviceGetHandleByIndex, 9),
    "beyond": code(n.nvmlDeviceGetNvLinkState, first, 17),
    "reserved": n.nvmlDeviceGetMemoryInfo(first, n.nvmlMemory_v2).reserved > 0,
    "power": code(n.nvmlDeviceGetPowerManagementLimit, first),
    "mig": code(n.nvmlDeviceGetMigMode, first),
    "ecc": code(n.nvmlDeviceGetEccMode, first),
    "persistence": code(n.nvmlDeviceGetPersistenceMode, first),
    "missing": code(n.nvmlDeviceGetFanSpeed, first),
}))
"""


@pytest.mark.parametrize(
    ("name", "beyond", "power"),
    [("dual-2080ti-nv2", "error 2", 260000), ("dual-5090-phb", "error 3", 575000)],
)
def test_other_questions(root: Path, name: str, beyond: str, power: int) -> None:
    nvml.install(root, nvml.scenario(name))
    assert ask(root, QUERIES) == {
        "cuda": 13000 if "2080" in name else 13030,
        "by_uuid": 0,
        "by_bus": 0,
        "no_index": "error 2",
        "beyond": beyond,
        "reserved": True,
        "power": power,
        "mig": "error 3",
        "ecc": "error 3",
        "persistence": 1,
        "missing": "error 13",
    }
