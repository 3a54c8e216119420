"""The operation `Host settings`: one call of the kit when something differs, nothing at all when nothing does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from gpufleet.changes import changes
from gpufleet.plan import BoxPlan
from operations import host
from tests.unit.findings import cards
from tests.unit.fleets import plan


class Box:
    """A box whose kit takes down what it is asked."""

    def __init__(self, found: BoxPlan) -> None:
        self.plan, self.changes = found, changes(found)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.noops: list[str] = []
        self.host = SimpleNamespace(name="box", noop=self.noops.append)

    def call(self, verb: str, spec: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        assert seconds > 90, "the driver has 20 s for each card to wake"
        self.asked.append((verb, spec))
        return {"applied": {}, "drift": [], "failed": ["swappiness: /proc/sys is read-only here"]}

    def command(self, action: Callable[[], Any]) -> Any:
        action()
        return iter([])

    def run(self) -> None:
        list(host.settings._inner(box=self))


def box(wanted: dict[str, Any], **facts: Any) -> Box:
    told = {"settings": None, "unit": "missing", "refused": {}}
    found = cards(host=told, hosts_entry=True, swappiness=60, **facts)
    return Box(plan(found, {"serve": [], "host": {"toolkit": "none", **wanted}}))


def test_nothing_to_do_is_no_command() -> None:
    found = box({})
    found.run()
    assert found.asked == [] and found.noops == ["the box is set as wanted"]


@pytest.mark.parametrize(
    ("wanted", "spec"),
    [
        ({"swappiness": 10}, {"swappiness": 10, "hosts_entry": True}),
        ({"hosts_entry": False, "governor": "performance"}, {"governor": "performance"}),
        ({"power_limit": {"GPU-1": 200}}, {"power_limit": {"GPU-1": 200}, "hosts_entry": True}),
    ],
)
def test_the_kit_gets_all_that_is_wanted_and_a_refusal_fails_nothing(
    wanted: dict[str, Any], spec: dict[str, Any]
) -> None:
    found = box(wanted)
    found.run()
    assert found.asked == [("host", spec)]
