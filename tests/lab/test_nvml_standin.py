"""Every topology through the probe, the real nvidia-ml-py and the compiled stand-in (which fetches NVIDIA's header)."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpufleet.facts import problems
from hostkit import listeners, nvlink
from hostkit import nvml as kit_nvml
from hostkit.roots import Roots
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
    assert seen["errors"] == [] and problems(seen) == []
    assert seen["driver"]["version"] == scenario["driver"]
    assert seen["links"] == scenario["links"]
    assert set(seen["p2p_read"]) == set(scenario["links"])
    assert scenario.get("p2p_read", {}).items() <= seen["p2p_read"].items()
    assert seen["p2p_write"] == seen["p2p_read"]
    assert seen["ancestors"] == {
        pair: "NODE" if link.startswith("NV") else link for pair, link in scenario["links"].items()
    }
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
    own = os.getpid()
    (root / "etc/gpufleet-lab/processes").write_text(f"1 {own} 2048\n1 4194305 1024\n0 4194306 8 G\n")
    seen = ask(root, SCRIPT, "20")["facts"]["gpus"]
    nobody = {"name": None, "unit": None}  # beyond the largest pid there can be
    assert (seen[0]["memory_used_mib"], seen[1]["memory_used_mib"]) == (8, 3072)
    assert seen[0]["processes"] == [{**nobody, "pid": 4194306, "memory_mib": 8, "kind": "graphics"}]
    assert seen[1]["processes"] == [
        {
            "pid": own,
            "memory_mib": 2048,
            "name": Path("/proc/self/comm").read_text().strip(),
            "kind": "compute",
            "unit": listeners.unit_of(Roots(), own),
        },
        {**nobody, "pid": 4194305, "memory_mib": 1024, "kind": "compute"},
    ]


def test_settings_of_a_card_and_its_links(root: Path) -> None:
    scenario = nvml.scenario("mixed-3090-two-v100")
    geforce, volta, _ = scenario["gpus"]
    geforce.update(gen=1, width=8, limit_w=250, persistence=0, display=1)
    volta.update(ecc=0, mig=1)
    scenario.update(p2p_write={"1-2": "NS"}, ancestors={"1-2": "PXB"})
    seen = facts(root, scenario)
    assert seen["errors"] == [] and problems(seen) == []
    first, second, _ = seen["gpus"]
    assert first["pcie"] == {"gen": 1, "gen_max": 4, "width": 8, "width_max": 16}
    assert first["power"] == {"limit_w": 250, "default_w": 350, "min_w": 100, "max_w": 385}
    keys = ("persistence", "ecc", "mig", "display_active")
    assert [first[key] for key in keys] == [False, None, None, True]
    assert [second[key] for key in keys] == [True, False, True, False]
    assert [link["active"] for link in first["nvlinks"]] == [False] * 4
    assert second["nvlinks"] == [
        {
            "link": link,
            "active": True,
            "version": 2,
            "speed_mbps": 25781,
            "remote": "gpu",
            "remote_bus_id": seen["gpus"][2]["bus_id"],
        }
        for link in range(6)
    ]
    assert (seen["p2p_read"]["1-2"], seen["p2p_write"]["1-2"], seen["ancestors"]["1-2"]) == ("OK", "NS", "PXB")


def test_links_through_a_switch(root: Path) -> None:
    scenario = {**nvml.scenario("dual-3090-nv4"), "nvswitch": True}
    seen = facts(root, scenario)
    assert seen["links"] == {"0-1": "NV4"} and problems(seen) == []
    assert {(link["remote"], link["remote_bus_id"]) for link in seen["gpus"][0]["nvlinks"]} == {("switch", None)}


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
    assert seen["errors"] == [{"source": "nvml", "message": "no answer within 0.5 s (in nvmlDeviceGetCount)"}]
    assert seen["driver"] is not None and seen["cpu"]["threads"] >= 1 and problems(seen) == []


@pytest.mark.parametrize(
    ("function", "about"),
    [("nvmlDeviceGetComputeRunningProcesses", "GPU 0"), ("nvmlDeviceGetP2PStatus", "GPU 0-1")],
)
def test_a_late_hang_keeps_the_cards(root: Path, function: str, about: str) -> None:
    scenario = nvml.scenario("dual-3090-nv4")
    seen = facts(root, {**scenario, "faults": {function: "hang"}}, seconds=2)
    assert seen["errors"] == [{"source": "nvml", "message": f"no answer within 2 s (in {function} of {about})"}]
    assert [gpu["name"] for gpu in seen["gpus"]] == [gpu["name"] for gpu in scenario["gpus"]]
    assert seen["gpus"][1]["power"]["default_w"] == 350 and len(seen["gpus"][1]["nvlinks"]) == 4
    assert seen["links"] == scenario["links"] and problems(seen) == []
    assert seen["driver"]["version"] == scenario["driver"] and seen["driver"]["cuda"] == "13.3"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The first card when nothing fails."""
    first: dict[str, Any] = facts(tmp_path_factory.mktemp("whole"), nvml.scenario("dual-3090-nv4"))["gpus"][0]
    return first


ASKED = sorted(set(re.findall(r'ask\("(nvml\w+)"', inspect.getsource(kit_nvml) + inspect.getsource(nvlink))))


@pytest.mark.parametrize("function", ASKED)
def test_each_call_that_fails_is_named_and_the_rest_is_there(root: Path, whole: dict[str, Any], function: str) -> None:
    scenario = nvml.scenario("dual-3090-nv4")
    seen = facts(root, {**scenario, "faults": {function.removesuffix("_v2"): 999}})
    assert problems(seen) == [] and seen["driver"] is not None
    assert {error["message"].split(":")[0] for error in seen["errors"]} == {function}
    if function not in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
        assert [gpu["index"] for gpu in seen["gpus"]] == [0, 1]
        assert len({key for key in whole if whole[key] != seen["gpus"][0][key]}) <= 2


def test_a_library_that_is_cut_off(root: Path) -> None:
    nvml.install(root, nvml.scenario("dual-3090-nv4"))
    library = root / "usr/lib/x86_64-linux-gnu" / nvml.LIBRARY
    whole = library.read_bytes()
    for size in (0, 64, len(whole) // 2):
        library.write_bytes(whole[:size])
        seen = ask(root, SCRIPT, "20")["facts"]
        assert [error["source"] for error in seen["errors"]] == ["nvml"]
        assert size or "file too short" in seen["errors"][0]["message"]
        assert seen["driver"] == {
            "version": "unknown",
            "cuda": None,
            "module": None,
            "flavour": None,
            "module_on_disk": None,
        }
        assert seen["gpus"] == [] and seen["cpu"]["threads"] >= 1 and problems(seen) == []


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
