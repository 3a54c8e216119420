"""The schema of the facts: what the probe answers is valid, what is committed is what is generated, and names go."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpufleet import facts
from gpufleet.anonymity import anonymous
from hostkit import probe
from tests.command import REPOSITORY
from tests.unit.fleets import cpu_facts, gpu_facts

SCHEMA = REPOSITORY / "docs/reference/facts.schema.json"
KEPT = sorted((REPOSITORY / "tests/data/facts").glob("*.json"))


def test_the_committed_schema_is_the_generated_one() -> None:
    command = [sys.executable, "-m", "gpufleet.facts"]
    printed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert SCHEMA.read_text(encoding="utf-8") == printed == facts.json_schema_text()


def test_every_key_of_the_facts_is_in_the_documentation() -> None:
    page = (REPOSITORY / "docs/reference/facts.md").read_text(encoding="utf-8")
    first_column = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    for name, field in facts.Facts.model_fields.items():
        assert f"`{field.alias or name}`" in first_column
    for kind in (facts.Gpu, facts.NvLink, facts.Pcie, facts.Power, facts.Process, facts.Driver, facts.Cpu):
        for name in kind.model_fields:
            assert f"`{name}`" in page, f"{kind.__name__}.{name}"


def test_the_kit_and_the_core_mean_the_same_schema() -> None:
    assert facts.SCHEMA == probe.SCHEMA
    names = {field.alias or name for name, field in facts.Facts.model_fields.items()}
    assert set(probe._nothing()) == names


def test_the_probe_of_this_machine_is_valid() -> None:
    answer = probe.run({"packages": ["g++", "never-there"]})["facts"]
    assert facts.problems(answer) == []
    assert facts.problems(json.loads(json.dumps(answer))) == []
    assert facts.problems(anonymous(answer)) == []


def test_facts_of_a_box_that_told_nothing_are_valid() -> None:
    assert facts.problems(probe._nothing()) == []


def test_facts_that_other_tests_use_are_valid() -> None:
    assert facts.problems(cpu_facts()) == []
    assert facts.problems(gpu_facts()) == []


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_answers_of_real_machines_are_valid_and_anonymous(path: Path) -> None:
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert facts.problems(kept) == []
    assert anonymous(kept) == kept


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schema": 1}, "schema: Input should be 2"),
        ({"hostname": None}, "hostname: Input should be a valid string"),
        ({"os": {"id": "debian"}}, "os.version_id: Field required"),
        ({"kernel_log": 1}, "kernel_log: Input should be a valid boolean"),
        ({"links": {"0-1": "NV0"}}, "links.0-1: String should match pattern"),
        ({"ancestors": {"0-1": "NV2"}}, "ancestors.0-1: Input should be"),
        ({"gpus": [{"index": "0"}]}, "gpus.0.index: Input should be a valid integer"),
        ({"compilers": {"gcc": None}}, "compilers.g++: Field required"),
    ],
)
def test_what_is_not_as_the_schema_says_is_named(change: dict[str, Any], problem: str) -> None:
    assert any(line.startswith(problem) for line in facts.problems({**gpu_facts(), **change}))


def test_a_missing_key_and_what_is_no_mapping() -> None:
    less = {key: value for key, value in cpu_facts().items() if key != "xid"}
    assert facts.problems(less) == ["xid: Field required"]
    assert len(facts.problems([])) == 1


def test_what_a_newer_kit_tells_is_ignored() -> None:
    assert facts.problems({**gpu_facts(), "weather": "fine"}) == []


UUID = "GPU-0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"
OTHER = "GPU-ffffffff-4f50-6172-8394-a5b6c7d8e9f0"


def test_names_and_numbers_go_and_the_hardware_stays() -> None:
    answer = gpu_facts(hostname="turing-1", machine_id="0" * 32)
    answer["gpus"][0].update(
        uuid=UUID, processes=[{"pid": 1, "memory_mib": 2, "name": "secret", "kind": "compute", "unit": "secret"}]
    )
    answer["gpus"][1].update(uuid=OTHER)
    answer["gpus"][1]["nvlinks"] = [
        {
            "link": 0,
            "active": True,
            "version": 3,
            "speed_mbps": 25781,
            "remote": "gpu",
            "remote_bus_id": "00000000:01:00.0",
        }
    ]
    last = f"NVRM: Xid (PCI:0000:01:00): 79, pid='77', name=secret, {OTHER} has fallen off the bus."
    answer["xid"] = [{"code": 79, "bus_id": "0000:01:00", "count": 1, "last": last}]
    package = {"version": "1", "origin": "https://me:pw@mirror.home/x y", "candidate": "2"}
    answer["nvidia_packages"] = {"nvidia-driver-580": package}
    answer["ports"] = {"8000": {"pid": 5, "command": "secret", "unit": "secret.service"}}
    answer["units"] = {
        "secret.service": {
            "id": "secret.service", "there": True, "active": "active", "state": "enabled",
            "wanted_by": ["secret.target"],
        }
    }  # fmt: skip
    answer["errors"] = [{"source": "x", "message": f"turing-1: turing-12 {UUID} http://mirror.home/"}]
    service = {"active": "active", "sub": "running", "enabled": True, "pid": 7, "restarts": 0, "since": None}
    held = {"since": "2026-11-29T17:40:00Z", "by": "secret@turing-1", "digest": "1" * 16}
    answer["instances"] = {
        "tiny": {
            "current": None, "releases": [], "drift": [], "gated": None, "stale": False, "port": None,
            "gpus": [OTHER, UUID.replace("0b", "0c")], "held": held, "service": service,
            "replaced": {"secret.service": {"enabled": True, "active": True, "ports": [8000]}},
            "activation": {
                "to": "1", "from": None, "step": "gating", "leaving": [], "began": 1.0, "attempts": 1, "run": None,
                "verb": "activate", "stopped": None, "touched": True, "replaces": ["secret.service"],
                "replaced": {"secret.service": {"path": "/home/secret/secret.service"}},
            },
        }
    }  # fmt: skip
    answer["lock"] = {
        "id": "1", "who": "secret", "host": "turing-1", "pid": 7, "run": None, "what": None,
        "since": "2026-11-29T17:40:00Z", "until": "2026-11-29T17:50:00Z",
    }  # fmt: skip
    before = copy.deepcopy(answer)
    assert facts.problems(before) == []
    clean = anonymous(answer)
    assert answer == before
    assert facts.problems(clean) == [] and anonymous(clean) == clean
    text = json.dumps(clean)
    assert not any(word in text for word in ("secret", UUID, OTHER, "turing-1:", "mirror.home", "pw@"))
    assert [gpu["uuid"] for gpu in clean["gpus"]] == [
        "GPU-00000000-0000-0000-0000-000000000001",
        "GPU-00000000-0000-0000-0000-000000000002",
    ]
    assert clean["instances"]["tiny"]["gpus"] == [
        "GPU-00000000-0000-0000-0000-000000000002",
        "GPU-00000000-0000-0000-0000-000000000000",
    ]
    assert (clean["instances"]["tiny"]["held"]["by"], clean["lock"]) == (None, None)
    assert clean["xid"][0]["last"].endswith("GPU-00000000-0000-0000-0000-000000000002 has fallen off the bus.")
    assert (clean["hostname"], clean["machine_id"]) == ("box", None)
    assert clean["errors"][0]["message"].startswith("box: turing-12 GPU-00000000-0000-0000-0000-000000000001 http")
    assert clean["gpus"][1]["nvlinks"] == before["gpus"][1]["nvlinks"]
    assert [gpu["bus_id"] for gpu in clean["gpus"]] == [gpu["bus_id"] for gpu in before["gpus"]]


def test_a_card_without_an_answer_stays_without_uuid() -> None:
    answer = gpu_facts()
    answer["gpus"][0]["uuid"] = None
    answer["gpus"][1]["uuid"] = UUID
    assert [gpu["uuid"] for gpu in anonymous(answer)["gpus"]] == [
        None,
        "GPU-00000000-0000-0000-0000-000000000001",
    ]
