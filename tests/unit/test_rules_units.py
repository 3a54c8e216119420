"""Rules about what somebody put beside a unit of ours, and who names it: a deploy's lines, status, diff."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpufleet import status
from gpufleet.changes import changes
from gpufleet.commands import diff
from gpufleet.pending import Pending
from gpufleet.plan import BoxPlan
from gpufleet.rules import check
from tests.unit.findings import Case, assert_fires, identify
from tests.unit.fleets import plan
from tests.unit.test_changes import deployed

UNIT = "gpufleet-tiny.service"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/override.conf"
CONTROL = f"/etc/systemd/system.control/{UNIT}.d/50-CPUWeight.conf"
FOR_ALL = "/etc/systemd/system/gpufleet-.service.d/limits.conf"


def facts(**service: Any) -> dict[str, Any]:
    found = copy.deepcopy(deployed())
    found["instances"]["tiny"]["service"].update({"fragment": f"/etc/systemd/system/{UNIT}", **service})
    return found


def box(settings: dict[str, Any] | None = None, **service: Any) -> BoxPlan:
    return plan(facts(**service), settings)


CASES = [
    Case("GF611", "warning", f"systemctl revert {UNIT}", box(drop_ins=[DROP_IN])),
    Case("GF611", "warning", f"rm {FOR_ALL} && systemctl daemon-reload", box(drop_ins=[FOR_ALL])),
    Case("GF611", "warning", f"rm {CONTROL} && systemctl daemon-reload", box(drop_ins=[CONTROL])),
    Case("GF612", "error", "/transient/u.service is in force", box(fragment="/run/systemd/transient/u.service")),
    Case("GF612", "error", "masks the unit of tiny", box(fragment="/etc/systemd/system.control/u", masked=True)),
    Case("GF613", "warning", "systemctl daemon-reload", box(unread=True)),
]


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_what_is_wrong_is_said(case: Case) -> None:
    assert_fires(case)


@pytest.mark.parametrize(
    "service",
    [{}, {"masked": True, "fragment": f"/etc/systemd/system/{UNIT}"}, {"fragment": f"/run/systemd/system/{UNIT}"}],
    ids=["ours", "a mask in its place, which a deploy replaces", "a folder that comes after ours"],
)
def test_what_is_in_order_or_put_right_is_no_finding(service: dict[str, Any]) -> None:
    assert not {"GF611", "GF612", "GF613"} & {finding.code for finding in check(box(**service))}


def test_a_drop_in_is_no_change_and_is_named_by_status_and_diff(capsys: pytest.CaptureFixture[str]) -> None:
    found = box(drop_ins=[DROP_IN], unread=True)
    wanted = Pending(found, check(found, deploying=True), changes(found))
    assert not wanted.changes and not wanted.refused
    drift = status.of_box("box-1", found.facts, {}, wanted)["drift"]
    assert [DROP_IN in line or "before a file of it changed" in line for line in drift] == [True, True]
    page = diff.page("box-1", wanted, {})
    assert [each["code"] for each in page["drift"]] == ["GF611", "GF613"] and page["changes"] == []
    diff.show(page, "inventory/home.py")
    said = capsys.readouterr().out
    assert f"box-1: drift: {DROP_IN} changes the unit of tiny" in said and "box-1: nothing to change" in said


def test_who_means_it_hears_no_more_of_it() -> None:
    found = box({"silence": ["unit-drop-in"]}, drop_ins=[DROP_IN])
    wanted = Pending(found, check(found, deploying=True), changes(found))
    assert wanted.of_others == [] and status.of_box("box-1", found.facts, {}, wanted)["drift"] == []
