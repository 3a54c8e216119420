"""The cache of facts: what is kept, when it is written, what counts as absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hostkit.probe
from gpufleet import known
from gpufleet.errors import ConfigError
from gpufleet.facts import SCHEMA
from tests.unit.fleets import cpu_facts, gpu_facts, plan


def busy(**more: Any) -> dict[str, Any]:
    """A box on which a lot goes on."""
    facts = gpu_facts(at="2026-01-01T00:00:00Z", ports={"8000": {"pid": 12}}, **more)
    facts["gpus"][0].update(memory_used_mib=20000, processes=[{"pid": 12, "memory_mib": 20000}])
    facts["memory"] = {"total_mib": 65536, "available_mib": 1000, "swap_mib": 0}
    facts["instances"] = {"tiny": {"port": 8003, "current": "x", "service": {"pid": 12, "since": "now"}}}
    facts["errors"] = [{"source": "toolkits", "message": "not readable"}]
    facts["units"] = {"vllm.service": {"id": "vllm.service", "active": "active"}}
    return facts


def test_the_schema_is_the_probes() -> None:
    assert SCHEMA == hostkit.probe.SCHEMA == cpu_facts()["schema"]


def test_only_what_a_box_is_and_has_is_kept(tmp_path: Path) -> None:
    assert known.keep(tmp_path / "facts", "a", busy())
    text = (tmp_path / "facts" / "a.json").read_text()
    kept = json.loads(text)
    assert (
        "ports" not in kept
        and "units" not in kept
        and "errors" not in kept
        and kept["instances"] == {"tiny": {"port": 8003}}
    )
    assert kept["memory"] == {"total_mib": 65536, "swap_mib": 0}
    assert "memory_used_mib" not in kept["gpus"][0] and kept["gpus"][0]["memory_mib"] == 22528
    assert text == json.dumps(kept, indent=1, sort_keys=True) + "\n"
    assert [path.name for path in (tmp_path / "facts").iterdir()] == ["a.json"]


def test_what_is_not_kept_is_read_as_nothing_and_makes_the_same_plan(tmp_path: Path) -> None:
    facts = busy()
    known.keep(tmp_path, "a", facts)
    found = known.read(tmp_path / "a.json")
    assert found is not None and set(found) == set(facts)
    assert found["gpus"][0]["processes"] == [] and found["ports"] == {}
    (now,), (then,) = (plan(each).instances for each in (facts, found))
    assert (now.args, now.env, now.gpus, now.port) == (then.args, then.env, then.gpus, 8003)


def test_a_file_is_written_again_only_for_something_new(tmp_path: Path) -> None:
    known.keep(tmp_path, "a", busy())
    before = (tmp_path / "a.json").read_bytes()
    later = {**gpu_facts(), **busy(), "at": "2027-01-01T00:00:00Z", "ports": {}}
    later["disks"] = {path: {**disk, "free_mib": 104_999} for path, disk in later["disks"].items()}
    later["clock"] = {"synchronized": False, "now": "2027-01-01T00:00:00Z"}
    later["gpus"][0]["pcie"]["gen"] = 1
    assert not known.keep(tmp_path, "a", later)
    assert (tmp_path / "a.json").read_bytes() == before
    later["disks"] = {path: {**disk, "free_mib": 52_345} for path, disk in later["disks"].items()}
    assert known.keep(tmp_path, "a", later)
    found = known.read(tmp_path / "a.json")
    assert found is not None and found["at"] == "2027-01-01T00:00:00Z"
    assert found["disks"]["/opt/gpufleet"]["free_mib"] == 52_000


@pytest.mark.parametrize(("free", "kept"), [(0, 0), (7, 7), (99, 99), (104_999, 100_000), (1_999_999, 1_900_000)])
def test_free_space_is_rounded_down(free: int, kept: int) -> None:
    assert known.rounded(free) == kept


@pytest.mark.parametrize(
    "text",
    [
        '{"schema": 1, "gp',
        "[]",
        "null",
        "[" * 100_000,
        json.dumps({**gpu_facts(), "schema": 0}),
        json.dumps({**gpu_facts(), "gpus": [{"index": 0}]}),
        json.dumps({**gpu_facts(), "gpus": [None]}),
        json.dumps({**gpu_facts(), "links": [1]}),
        json.dumps({**gpu_facts(), "memory": 3}),
    ],
)
def test_damaged_or_of_another_schema_counts_as_absent(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert known.read(tmp_path / "a.json") is None
    assert known.keep(tmp_path, "a", gpu_facts())
    assert known.read(tmp_path / "a.json") is not None


@pytest.mark.parametrize(
    "more",
    [
        {"gpus": [], "errors": [{"source": "nvml", "message": "x"}]},
        {"gpus": []},  # a driver that shows nothing
        {"gpus": [], "driver": None, "errors": [{"source": "driver", "message": "x"}]},
        {"gpus": [{"index": 0, "uuid": None, "compute_capability": None}]},
    ],
)
def test_a_look_that_did_not_tell_what_the_box_is_is_not_kept(tmp_path: Path, more: dict[str, Any]) -> None:
    assert not known.keep(tmp_path, "a", {**gpu_facts(), **more})
    assert not (tmp_path / "a.json").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "facts").write_text("a file")
    with pytest.raises(ConfigError, match="facts cannot be kept"):
        known.keep(tmp_path / "facts", "a", cpu_facts())


def test_news_are_hardware_first_then_the_rest(tmp_path: Path) -> None:
    new = busy(packages={"g++": "12"})
    new["links"] = {"0-1": "NV1"}
    new["driver"] = {**new["driver"], "version": "590.1"}
    assert known.news(busy(), new) == [
        "0-1: NV2 before, NV1 now",
        "driver.version: 580.159.03 before, 590.1 now",
        "packages.g++: none before, 12 now",
    ]
    assert known.news(busy(), busy()) == []


def test_news_of_what_is_no_hardware(tmp_path: Path) -> None:
    old, new = busy(), busy()
    old["cpu"] = {"cores": 8, "governor": "performance"}
    new["cpu"] = {"cores": 8, "governor": "powersave"}
    new["memory"] = {**new["memory"], "total_mib": 65500}
    for facts, active, limit in ((old, True, 250), (new, False, 200)):
        facts["gpus"][1].update(power={"limit_w": limit}, nvlinks=[{"link": 0, "active": True}, {"active": active}])
    assert known.news(old, new) == [
        "cpu.governor: performance before, powersave now",
        "gpus.1.nvlinks.1.active: true before, false now",
        "gpus.1.power.limit_w: 250 before, 200 now",
        "memory.total_mib: 65536 before, 65500 now",
    ]


def test_what_is_said_of_the_hardware_is_not_said_twice(tmp_path: Path) -> None:
    new = busy()
    new["memory"] = {**new["memory"], "total_mib": 32768}
    gone = new["gpus"].pop()
    new["links"] = {}
    assert known.news(busy(), new) == [
        "RAM: 65536 MiB before, 32768 MiB now",
        f"GPU 1 ({gone['bus_id']}), a card {gone['uuid']}, is gone",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"schema": 2, "gp', "Unterminated string"),
        ("[" * 100_000, "recursion"),
        (json.dumps({**known.stable(cpu_facts()), "schema": 1}), "schema: "),
        (json.dumps({key: value for key, value in known.stable(cpu_facts()).items() if key != "cpu"}), "cpu: "),
    ],
)
def test_a_file_that_is_not_read_says_why(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.json").write_text(text)
    said = known.ignored(tmp_path, "a")
    assert known.read(tmp_path / "a.json") is None
    assert f"{tmp_path / 'a.json'} cannot be read as facts and is ignored (" in said and why in said


def test_nothing_is_said_of_a_file_that_is_read_or_not_there(tmp_path: Path) -> None:
    known.keep(tmp_path, "a", cpu_facts())
    assert known.read(tmp_path / "a.json") and known.ignored(tmp_path, "a") == known.ignored(tmp_path, "b") == ""
