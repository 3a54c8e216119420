"""What a deploy would do: nothing on a box that is as planned, and exactly the missing thing on any other."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpufleet.changes import changes
from gpufleet.errors import ConfigError
from gpufleet.plan import BoxPlan
from gpufleet.render import release
from tests.unit.fleets import gpu_facts, plan

UNKNOWN = "; it goes down for that, no figure yet for how long"


def deployed() -> dict[str, Any]:
    """Facts of a box on which everything is as planned."""
    facts = gpu_facts()
    first = plan(facts)
    digest = release(first.instances[0]).digest
    facts["packages"] = dict.fromkeys(first.packages, "1")
    facts["apt"] = {"installed": ["cuda-nvcc-13-0"], "held": ["cuda-nvcc-13-0"], "upgrades": "current"}
    facts["toolkits"] = {"13.0": "/usr/local/cuda-13.0"}
    facts["runtimes"] = {first.runtimes[0].name: {"complete": True}}
    facts["models"] = {"tiny/r1": {"complete": True}}
    facts["instances"] = {
        "tiny": {
            "current": digest,
            "releases": [digest],
            "drift": [],
            "gated": digest,
            "stale": False,
            "service": {"active": "active", "sub": "running", "enabled": True, "pid": 7, "restarts": 0},
        }
    }
    return facts


def changed(path: str, value: Any) -> BoxPlan:
    facts = copy.deepcopy(deployed())
    *parents, last = path.split("/")
    place: Any = facts
    for part in parents:
        place = place[part.replace("~", "/")]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return plan(facts)


def test_nothing_to_do() -> None:
    found = changes(plan(deployed()))
    assert not found and found.lines() == []


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("packages/g++", None, "apt install g++"),
        ("packages/cuda-toolkit-13-0", None, "apt install cuda-toolkit-13-0"),
        ("apt/held", [], "hold cuda-nvcc-13-0"),
        ("apt/upgrades", "missing", "off driver and toolkit: /etc/apt/apt.conf.d/51gpufleet is missing"),
        ("apt/upgrades", "changed", "off driver and toolkit: /etc/apt/apt.conf.d/51gpufleet is changed"),
        ("models", {}, "put model tiny r1 in place"),
        ("models/tiny~r1/link", "/srv/tiny", "put model tiny r1 in place"),
        ("instances/old", {"current": "0" * 16, "releases": ["0" * 16]}, "retire old: it is in no serve entry"),
        ("instances", {}, ": new"),
        ("instances/tiny/service/active", "inactive", ": its service is inactive"),
        ("instances/tiny/service/enabled", False, ": its service is not enabled"),
        ("instances/tiny/current", "0" * 16, ": its configuration changed (was 0000000000000000)" + UNKNOWN),
        ("instances/tiny/drift", ["serve.yaml: modified"], ": serve.yaml: modified" + UNKNOWN),
        ("instances/tiny/stale", True, ": an earlier activation did not end" + UNKNOWN),
        ("instances/tiny/gated", "0" * 16, ": an earlier activation did not end" + UNKNOWN),
    ],
)
def test_exactly_the_missing_thing(path: str, value: Any, line: str) -> None:
    found = changes(changed(path, value))
    anew = "activate tiny " if line.startswith("put model") else None
    assert [item for item in found.lines() if not (anew and item.startswith(anew))] == [
        next(item for item in found.lines() if item.endswith(line))
    ]
    assert bool(anew) == any(item.endswith("anew" + UNKNOWN) for item in found.lines())


def test_a_lost_link_is_told_from_a_changed_configuration() -> None:
    facts = deployed()
    facts["instances"]["tiny"]["current"] = None
    assert changes(plan(facts)).lines()[0].endswith(": its current link is gone")


def test_an_edited_release_is_staged_again_and_a_lost_link_is_not() -> None:
    (edited,) = changes(changed("instances/tiny/drift", ["serve.env: modified"])).instances
    assert edited.stage
    (stopped,) = changes(changed("instances/tiny/service/active", "failed")).instances
    assert not stopped.stage


def test_the_owner_keeps_apt_to_himself() -> None:
    facts = deployed() | {"packages": {}, "toolkits": {}}
    facts["apt"] = {"installed": ["cuda-nvcc-13-0"], "held": [], "upgrades": "missing"}
    assert not changes(plan(facts, {"host": {"install_packages": False}}))


def test_an_owner_who_wants_no_holds_gets_them_back_and_only_ours() -> None:
    host = {"host": {"hold_packages": False}}
    assert changes(plan(deployed(), host)).lines() == [
        "release the hold of cuda-nvcc-13-0",
        "remove /etc/apt/apt.conf.d/51gpufleet",
    ]
    facts = deployed() | {"apt": {"installed": ["cuda-nvcc-13-0"], "held": [], "upgrades": "missing"}}
    assert not changes(plan(facts | {"holds": ["cuda-nvcc-13-0"]}, host))


@pytest.mark.parametrize(
    "facts",
    [
        {"apt": None},
        {"apt": {"installed": ["cuda-nvcc-13-0"], "held": [], "upgrades": "current"}, "holds": ["cuda-nvcc-13-0"]},
    ],
)
def test_what_is_not_known_and_what_an_owner_holds_is_left(facts: dict[str, Any]) -> None:
    assert not changes(plan(deployed() | facts))


def test_apts_list_is_for_boxes_with_a_toolkit_or_cards_in_use() -> None:
    bare = {"installed": [], "held": [], "upgrades": "missing"}
    idle = {"serve": [], "host": {"toolkit": "none"}}
    assert not changes(plan(gpu_facts(apt=bare), idle))
    assert len(changes(plan(gpu_facts(apt=bare), {**idle, "host": {"toolkit": "13-0"}})).apt) == 1


def test_of_many_packages_some_are_named() -> None:
    facts = deployed()
    facts["apt"]["installed"] = [f"cuda-{index}" for index in range(9)]
    assert changes(plan(facts)).lines() == ["hold cuda-0, cuda-1, cuda-2 and 6 more"]


def activated(down: float | None) -> dict[str, Any]:
    line = {"at": "2026-11-29T17:40:00Z", "digest": "1" * 16, "outcome": "activated"}
    return {**line, "down_seconds": down, "ready_seconds": 60.0, "tokens_per_second": None}


def test_how_long_it_was_down_the_last_time_is_said_before_it_is_taken_down() -> None:
    facts = deployed()
    facts["instances"]["tiny"]["history"] = [activated(80.0), activated(92.4), activated(None)]
    facts["instances"]["tiny"]["stale"] = True
    assert changes(plan(facts)).lines()[0].endswith("did not end; last time 92 s down")
    facts["instances"]["tiny"]["service"]["active"] = "failed"
    assert changes(plan(facts)).lines()[0].endswith(": its service is failed")


def test_what_is_put_right_beside_a_running_service_takes_none_down() -> None:
    facts = deployed()
    for drift in ("runtime: missing", "model: modified", "/etc/systemd/system/gpufleet-tiny.service: missing"):
        facts["instances"]["tiny"]["drift"] = [drift]
        assert changes(plan(facts)).lines()[0].endswith(f": {drift}")


def test_an_activation_that_was_cut_off_is_a_reason() -> None:
    facts = deployed()
    facts["instances"]["tiny"]["activation"] = {"to": "2" * 16, "step": "gating"}
    assert f": its activation of {'2' * 16} did not end (at gating)" in changes(plan(facts)).lines()[0]


def test_an_instance_that_is_held_is_left_alone() -> None:
    facts = deployed() | {"runtimes": {}, "models": {}}
    held = {"since": "2026-11-29T17:40:00Z", "by": "ann@desk", "digest": "1" * 16}
    facts["instances"]["tiny"].update(current="1" * 16, held=held)
    found = changes(plan(facts))
    assert not found and found.lines() == []
    assert found.notes() == [
        f"tiny is left as it is: held since 2026-11-29T17:40:00Z on release {'1' * 16} by ann@desk, until "
        "`gpufleet unhold INVENTORY box-1/tiny`"
    ]
    other = changes(plan(facts, {"serve": []}))
    assert other.leaving == [] and list(other.held) == ["tiny"]


@pytest.mark.parametrize("name", ["resume", "host", "share"])
def test_names_of_units_that_are_no_instances_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot be named {name}"):
        plan(gpu_facts(), {"serve": [{"model": "tiny", "name": name}]})
