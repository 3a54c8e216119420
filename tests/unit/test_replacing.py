"""`replaces` of a serve entry: what is said of the owner's units, and what of theirs counts as free."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpufleet import status
from gpufleet.changes import changes
from gpufleet.document import document
from gpufleet.errors import ConfigError
from gpufleet.pending import Pending
from gpufleet.plan import BoxPlan
from gpufleet.planning import checked_plan
from gpufleet.rules import check
from gpufleet.tables import notes
from tests.unit.findings import Case, assert_fires, cards, engine, identify, said, served
from tests.unit.fleets import gpu_facts, plan
from tests.unit.test_changes import deployed

OLD = "vllm.service"
ON_OLD = {"pid": 9, "command": "vllm", "unit": OLD}
SERVE = {"serve": [{"model": "tiny", "replaces": [OLD]}]}


def unit(**more: Any) -> dict[str, Any]:
    """The owner's unit as the probe tells of it: it runs, and is enabled."""
    found = {"id": OLD, "there": True, "active": "active", "state": "enabled", "wanted_by": ["multi-user.target"]}
    return {OLD: {**found, **more}}


def box(settings: dict[str, Any] | None = None, **facts: Any) -> BoxPlan:
    """One that does not serve yet."""
    return plan({**gpu_facts(), "units": unit(), "ports": {"8000": ON_OLD}, **facts}, settings or SERVE)


def there(settings: dict[str, Any] | None = None, taken: bool = True, **of_unit: Any) -> BoxPlan:
    """One whose instance serves, in the unit's place when it is `taken`."""
    facts = {**copy.deepcopy(deployed()), "units": unit(**of_unit)}
    if taken:
        facts["instances"]["tiny"]["replaced"] = {OLD: {"enabled": True, "active": True, "ports": [8000]}}
    return plan(facts, settings or SERVE)


OFF: dict[str, Any] = {"active": "inactive", "state": "disabled", "wanted_by": []}
GONE: dict[str, Any] = {"there": False, "active": "inactive", "state": "", "wanted_by": []}

CASES = [
    Case("GF615", "warning", f"{OLD} runs and starts at boot, and tiny has its place", there()),
    Case("GF615", "warning", f"systemctl disable --now {OLD}", there({"serve": ["tiny"]}, active="inactive")),
    Case("GF615", "warning", f"{OLD} runs, and tiny", there(taken=False, state="disabled")),
    Case("GF616", "warning", "there is no such unit", box(units=unit(**GONE), ports={})),
    Case("GF616", "error", f"systemctl --user disable --now {OLD}", box(units=unit(**GONE))),
    Case("GF617", "warning", "is started by vllm.socket", box(units=unit(wanted_by=["a.target", "vllm.socket"]))),
    Case("GF617", "warning", "is started by a.service", box(units=unit(state="static", wanted_by=["a.service"]))),
    Case("GF616", "error", "nothing could start it again", box(units=unit(state="transient", wanted_by=[]))),
    Case("GF617", "warning", "a link in multi-user.target.wants", box(units=unit(state="static"))),
    Case("GF617", "warning", f"`systemctl show {OLD}`", box(units=unit(state="generated"))),
    Case("GF604", "error", f'"replaces": ["{OLD}"]', box({"serve": ["tiny"]})),
    Case("GF604", "error", f"taken by {OLD}", box(units=unit(**GONE))),
]


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_what_is_wrong_is_said(case: Case) -> None:
    assert_fires(case)


@pytest.mark.parametrize(
    "found",
    [
        box(),
        box(units={}),
        box(units=unit(id="old.service"), ports={"8000": {**ON_OLD, "unit": "old.service"}}),
        there(**OFF),
        there(**GONE),
    ],
    ids=["about to be", "nothing is known", "by another name", "done", "done, and its file is gone"],
)
def test_what_is_in_order_is_no_finding(found: BoxPlan) -> None:
    assert not {"GF604", "GF402", "GF615", "GF616", "GF617"} & {each.code for each in check(found)}


@pytest.mark.parametrize(("replaces", "units", "fires"), [([], [OLD], 1), ([OLD], [OLD], 0), ([OLD], ["x.service"], 1)])
def test_its_memory_counts_as_free(replaces: list[str], units: list[str], fires: int) -> None:
    held = [
        {"pid": 70 + number, "memory_mib": 20000, "name": "python3", "kind": "compute", "unit": name}
        for number, name in enumerate(units)
    ]
    facts = cards(1, (8, 6), of_each={"processes": held}, units=unit())
    data = {"serve": [{"model": "tiny", "replaces": replaces}]}
    findings = said(served(facts, engine("sm86"), data=data), "GF402")
    assert len(findings) == fires
    for finding in findings:
        assert f"(pid 70, {units[0]})" in finding.message and f'"replaces": ["{units[0]}"]' in finding.remedy


@pytest.mark.parametrize(("program", "unit"), [("nginx", "nginx.service"), ("python3", "ssh.service")])
def test_no_unit_that_is_for_more_is_offered_to_be_replaced(program: str, unit: str) -> None:
    holder = {"8000": {"pid": 9, "command": program, "unit": unit}}
    (finding,) = said(box({"serve": ["tiny"]}, ports=holder), "GF604")
    assert finding.remedy == "stop it, or set another `port` for tiny"


def test_a_deploy_says_what_it_takes_the_place_of() -> None:
    (change,) = changes(box()).instances
    assert change.replaces == [OLD] and "new; takes the place of vllm.service, stopped for it" in change.line()
    (off,) = changes(box(units=unit(**OFF), ports={})).instances
    assert off.replaces == [] and off.line().endswith(": new")


def test_to_be_told_of_it_changes_nothing_where_the_instance_serves() -> None:
    assert not changes(there(taken=False))
    assert changes(there(taken=False)).lines() == []


def test_it_is_drift_when_it_runs_again() -> None:
    found = there()
    wanted = Pending(found, check(found, deploying=True), changes(found))
    assert not wanted.changes and [each.code for each in wanted.of_others] == ["GF615"]
    (line,) = status.of_box("box-1", found.facts, {}, wanted)["drift"]
    assert OLD in line


def test_what_leaves_says_that_the_unit_stays_off() -> None:
    (line,) = changes(there({"serve": []})).lines()
    assert line.startswith("retire tiny: ") and f"`systemctl enable --now {OLD}` brings it back" in line


def test_one_of_several_that_leaves_says_nothing_of_the_unit() -> None:
    """The others have its place still."""
    found = there()
    found.facts["instances"]["second"] = copy.deepcopy(found.facts["instances"]["tiny"])
    (line,) = changes(found).lines()
    assert line == "retire second: it is in no serve entry"


def test_a_plan_says_it_too() -> None:
    found = checked_plan(box(units={}))
    assert document([found])["boxes"][0]["instances"][0]["replaces"] == [OLD]
    assert (f"{found.plan.name}: tiny takes the place of {OLD}", "") in notes(found)


@pytest.mark.parametrize("name", ["vllm@turing-1.service", r"a\x2db.service", "my_vllm:2.service"])
def test_names_that_systemd_has(name: str) -> None:
    assert box({"serve": [{"model": "tiny", "replaces": [name, name]}]}).instances[0].replaces == (name,)


@pytest.mark.parametrize(
    "name",
    ["vllm", "gpufleet-tiny.service", "vllm.socket", "../a.service", "-a b.service", "--now.service", "a@.service"],
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ConfigError, match="replaces"):
        box({"serve": [{"model": "tiny", "replaces": [name]}]})
