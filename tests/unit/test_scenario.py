"""Topology scenarios: facts as far as they tell, and what is wrong in one is said with its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpufleet import scenario
from gpufleet.errors import ConfigError
from gpufleet.traits import traits_of

TOPOLOGIES = sorted((Path(__file__).resolve().parents[2] / "lab" / "topologies").glob("*.json"))


def page(**more: Any) -> dict[str, Any]:
    gpus = [
        {"index": i, "name": "a card", "compute_capability": [7, 5], "memory_mib": 22528, "bus_id": f"0000:0{i}:00.0"}
        for i in range(2)
    ]
    return {"name": "box", "driver": "580.1", "gpus": gpus, "links": {"0-1": "NV2"}, **more}


def load(tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "box.json"
    path.write_text(text, encoding="utf-8")
    return scenario.load(path)


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_every_scenario_of_the_lab_is_read(path: Path) -> None:
    facts = scenario.load(path)
    given = json.loads(path.read_text(encoding="utf-8"))
    assert [gpu["name"] for gpu in facts["gpus"]] == [gpu["name"] for gpu in given["gpus"]]
    assert facts["links"] == given["links"]
    assert traits_of(facts)


def test_a_box_without_cards_has_no_driver(tmp_path: Path) -> None:
    assert load(tmp_path, json.dumps(page(gpus=[], links={})))["driver"] is None


def test_the_drivers_cuda_is_known_by_its_branch(tmp_path: Path) -> None:
    drivers = ("450.80.02", "470.256.02", "525.60.13", "535.54.03", "580.95.05", "595.45.04")
    found = [load(tmp_path, json.dumps(page(driver=version)))["driver"]["cuda"] for version in drivers]
    assert found == ["11.0", "11.4", "12.0", "12.2", "13.0", "13.2"]


def test_cards_have_uuids_of_their_own(tmp_path: Path) -> None:
    first, second = load(tmp_path, json.dumps(page()))["gpus"]
    assert first["uuid"] != second["uuid"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "box.json: cannot be read"),
        ("[]", "box.json: must be a mapping"),
        (json.dumps(page(links={})), "links: '0-1' is missing"),
        (json.dumps(page(links={"0-1": "NV2", "0-2": "SYS"})), "'0-2' is no pair i-j of these GPUs"),
        (json.dumps(page(links={"0-1": "NVX"})), "links"),
        (json.dumps({key: value for key, value in page().items() if key != "driver"}), "'driver' is missing"),
        (json.dumps(page(driver="new")), "driver"),
        (json.dumps(page(gpus=[page()["gpus"][0]] * 2)), "an index is there twice"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"box\.json") as error:
        load(tmp_path, text)
    assert says in str(error.value)


def test_what_nvidia_smi_prints_is_read_as_it_stands(tmp_path: Path) -> None:
    cards = [{**gpu, "compute_capability": 7.5, "memory_mib": "22528 MiB"} for gpu in page()["gpus"]]
    first = load(tmp_path, json.dumps(page(gpus=cards)))["gpus"][0]
    assert (first["compute_capability"], first["memory_mib"]) == ([7, 5], 22528)


def test_what_is_not_known_is_named_and_goes_into_no_facts(tmp_path: Path) -> None:
    cards = [{**gpu, "memory": 1} for gpu in page()["gpus"]]
    path = tmp_path / "box.json"
    path.write_text(json.dumps(page(gpus=cards, p2p_reed={})), encoding="utf-8")
    found = scenario.page(path)
    assert scenario.unknown_keys(found)[0] == "'p2p_reed' is not known here and ignored; did you mean 'p2p_read'?"
    assert len(scenario.unknown_keys(found)) == 3
    assert "memory" not in scenario.facts_of(found)["gpus"][0]
