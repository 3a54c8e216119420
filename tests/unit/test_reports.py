"""The file a run leaves: as its schema says, without secrets, for its owner only, the newest fifty."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from gpufleet import report_schema, reports
from gpufleet.changes import changes
from gpufleet.report import Outcome, Step
from gpufleet.rules import check
from gpufleet.settings import Rollout
from gpufleet.waves import Candidate, order
from tests.command import REPOSITORY
from tests.unit.fleets import gpu_facts, plan
from tests.unit.test_changes import deployed

BEGAN = 1_795_000_000.0


def run(**more: Any) -> reports.Run:
    given: dict[str, Any] = {
        "id": "20261130T000000Z-abcd", "began": BEGAN, "exit_code": 0, "message": "", "dry": False,
        "inventory": "inventory/home.py", "order": order([Candidate("box-1", "sm75")], {}, Rollout()),
    }  # fmt: skip
    return reports.Run(**{**given, **more})


def outcome(facts: dict[str, Any], **more: Any) -> Outcome:
    box = plan(facts)
    found = changes(box)
    names = {change.instance.name for change in found.instances}
    return Outcome("box-1", box, check(box), found.lines(), names, leaving=found.leaving, **more)


def test_a_report_is_as_its_schema_says() -> None:
    facts = deployed()
    facts["instances"]["tiny"]["current"] = "0" * 16
    steps = [Step("Lock", BEGAN, 0.1, True, "done"), Step("Wave 1 of 1: box-1", BEGAN + 1)]
    switched = outcome(facts, steps=steps, gates={"tiny": {"restarted": True, "seconds": 3.0}}, serves={"tiny": "1"})
    failed = outcome(gpu_facts(), failure="it is off. Turn it on.", cause="it is off", remedy="turn it on", log="x\ny")
    unknown = Outcome("box-3", failure="no", cause="no", remedy="")
    unknown.box, failed.box = "box-3", "box-2"
    found = reports.document(run(turns={1: ["box-1"]}), [switched, failed, unknown], BEGAN + 9)
    report_schema.Report.model_validate(found)
    assert (found["seconds"], found["end"], found["waves"][0]["switched"]) == (9.0, "done", ["box-1"])
    tiny = found["boxes"]["box-1"]["instances"]["tiny"]
    assert (tiny["before"], tiny["after"], tiny["changed"]) == ("0" * 16, "1", True)
    assert [step["outcome"] for step in found["boxes"]["box-1"]["steps"]] == ["done", "interrupted"]
    assert found["boxes"]["box-2"]["failure"] == {"cause": "it is off", "remedy": "turn it on", "log": "x\ny"}
    assert found["boxes"]["box-3"]["instances"] == {}


@pytest.mark.parametrize(("code", "end"), [*reports.ENDS.items(), (7, "failed")])
def test_every_end_has_its_word(code: int, end: str) -> None:
    assert reports.document(run(exit_code=code), [])["end"] == end


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({}, "changed"),
        ({"interrupted": True}, "interrupted"),
        ({"untouched": "the fleet is locked"}, "not touched"),
        ({"put_back": {"tiny": "serves x"}}, "put back"),
        ({"failure": "x"}, "failed"),
    ],
)
def test_what_became_of_a_box(more: dict[str, Any], word: str) -> None:
    assert outcome(gpu_facts(), **more).word(dry=False) == word


def test_the_schema_in_the_documentation_is_the_one_in_force() -> None:
    page = (REPOSITORY / "docs/reference/report.schema.json").read_text(encoding="utf-8")
    assert page == report_schema.json_schema_text()


def test_it_is_for_its_owner_only_and_the_newest_fifty_stay(tmp_path: Path) -> None:
    folder = tmp_path / "inventory" / "reports" / "home"
    folder.mkdir(parents=True)
    (folder / "notes.json").write_text("mine")
    for number in range(reports.KEPT + 3):
        path = reports.keep(folder, f"20261130T00{number:02}00Z-abcd", {"number": number}, [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and json.loads(path.read_text()) == {"number": 52}
    assert sorted(each.name for each in folder.iterdir()) == [
        *(f"20261130T00{number:02}00Z-abcd.json" for number in range(3, reports.KEPT + 3)),
        "notes.json",
    ]
