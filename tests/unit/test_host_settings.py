"""Settings of the box itself: what a deploy would change of them, beside what the box told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpufleet import host
from gpufleet.changes import changes
from gpufleet.errors import ConfigError
from gpufleet.layers import checked
from gpufleet.plan import BoxPlan
from hostkit import host_state
from tests.unit.findings import cards
from tests.unit.fleets import cpu_facts, plan

NOTHING = {"settings": None, "unit": "missing", "refused": {}}
ALL = {
    "persistence_mode": True,
    "power_limit": 200,
    "governor": "performance",
    "overcommit_memory": 1,
    "swappiness": 10,
}


def box(wanted: dict[str, Any], told: dict[str, Any] | None = NOTHING, **facts: Any) -> BoxPlan:
    """An idle box with two cards, at 250 W and without persistence mode."""
    of_box = {"swappiness": 60, "hosts_entry": True, "host": told, **facts}
    return plan(cards(of_each={"persistence": False}, **of_box), {"serve": [], "host": {"toolkit": "none", **wanted}})


def applied(wanted: dict[str, Any]) -> BoxPlan:
    """The same after a deploy that set all of it."""
    of_boot = host.wanted(box(wanted))
    del of_boot["hosts_entry"]
    power = {"limit_w": 200, "default_w": 250, "min_w": 100, "max_w": 280}
    facts = cards(
        of_each={"persistence": True, "power": power},
        cpu={"governor": "performance"},
        overcommit_memory=1,
        swappiness=10,
        hosts_entry=True,
        host={"settings": host.digest(of_boot), "unit": "current", "refused": {}},
    )
    return plan(facts, {"serve": [], "host": {"toolkit": "none", **wanted}})


def test_an_owner_who_sets_nothing_gets_the_name_and_no_unit() -> None:
    assert host.wanted(box({})) == {"hosts_entry": True}
    assert not changes(box({}))
    assert changes(box({}, hosts_entry=False)).lines() == ["put box into /etc/hosts"]
    assert not changes(box({"hosts_entry": False}, hosts_entry=False))


def test_each_value_that_differs_is_a_line_and_so_is_the_unit() -> None:
    assert changes(box(ALL)).lines() == [
        "set persistence mode of GPU 0 to on (it is off)",
        "set the power limit of GPU 0 to 200 W (it is 250 W)",
        "set persistence mode of GPU 1 to on (it is off)",
        "set the power limit of GPU 1 to 200 W (it is 250 W)",
        "set the CPU governor to performance (it is unknown)",
        "set vm.overcommit_memory to 1 (it is 0)",
        "set vm.swappiness to 10 (it is 60)",
        "install gpufleet-host.service: it is missing",
    ]


def test_what_is_set_is_nothing_to_do() -> None:
    assert not changes(applied(ALL))


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("settings", "0" * 16, "renew what gpufleet-host.service applies"),
        ("unit", "changed", "install gpufleet-host.service: it is changed"),
    ],
)
def test_the_unit_drifts_by_itself(key: str, value: str, line: str) -> None:
    found = applied(ALL)
    told = {**found.facts["host"], key: value}
    again = plan({**found.facts, "host": told}, {"serve": [], "host": {"toolkit": "none", **ALL}})
    assert changes(again).lines() == [line]


def test_a_unit_for_which_nothing_is_set_any_more_goes() -> None:
    told = {"settings": "0" * 16, "unit": "current", "refused": {}}
    assert changes(box({}, told)).lines() == ["remove gpufleet-host.service: nothing is set for it"]


def test_what_the_box_refused_is_not_tried_again_unless_something_else_is_wanted() -> None:
    known = {"swappiness": {"wanted": 10, "why": "/proc/sys is read-only here"}}
    told = {"settings": host.digest({"swappiness": 10}), "unit": "current", "refused": known}
    assert not changes(box({"swappiness": 10}, told))
    assert "set vm.swappiness to 20 (it is 60)" in changes(box({"swappiness": 20}, told)).lines()
    (line,) = host.refused(box({"swappiness": 10}, told))
    assert line == ("vm.swappiness is not 10", "/proc/sys is read-only here")
    assert list(host.refused(box({"swappiness": 20}, told))) == []


def test_nothing_is_said_where_the_box_did_not_tell() -> None:
    assert not changes(box(ALL, None))
    told = {"settings": "0" * 16, "unit": "current", "refused": {}}
    assert not changes(box(ALL, told, gpus=[], errors=[{"source": "nvml", "message": "no answer within 20 s"}]))


def test_a_limit_by_uuid_goes_before_the_longest_name() -> None:
    limit = {"2080 Ti": 210, "RTX 2080 Ti": 220, "GPU-1": 230, "RTX 3090": 300}
    assert host.limits(box({"power_limit": limit})) == {"GPU-0": 220, "GPU-1": 230}
    assert host.limits(box({"power_limit": {"RTX 2080": 200}})) == {}


def test_a_box_without_cards_has_no_modes_of_cards() -> None:
    assert host.wanted(plan(cpu_facts(), {"host": {"persistence_mode": True, "power_limit": 200}})) == {
        "hosts_entry": True
    }


def test_core_and_kit_keep_the_same_of_the_settings() -> None:
    wanted = host.wanted(box(ALL))
    of_boot = json.loads(host_state.spec_text(wanted))
    assert set(of_boot) == set(host.OF_BOOT) == set(ALL)
    assert host.OF_BOOT == host_state.OF_BOOT and host.UNIT == host_state.UNIT


@pytest.mark.parametrize(
    "wrong",
    [
        {"power_limit": 0},
        {"power_limit": "200"},
        {"power_limit": {"GPU-1": 200.5}},
        {"governor": "performance; reboot"},
        {"overcommit_memory": 3},
        {"swappiness": 201},
        {"persistence_mode": "on"},
    ],
)
def test_a_wrong_value_is_refused_before_any_connection(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="host"):
        checked({"host": wrong}, "group_data/all.py")
