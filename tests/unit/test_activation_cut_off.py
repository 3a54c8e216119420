"""An activation that is cut off at any of its moments ends on a release that passed its gate, and the journal is whole.

Each scenario is run once for every moment: before and after each write of the state and of the journal, before and after
each call of systemctl, and while the gate asks. The process is gone there, as by SIGKILL; then the box goes on by
`resume`, with its units still as they were, or after a boot that has started what is enabled.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostkit import restart, resume, rollback, state
from hostkit.errors import Failure
from tests.unit.activation_box import Machine, machine  # noqa: F401 - a fixture

Scenario = Callable[[Machine], "tuple[Callable[[], Any], set[str | None]]"]
ENDS = ("activated", "rolled-back", "restarted", "put-back", "left")


def upgrade(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    old, new = box.stage("a: 1"), box.stage("a: 2")
    box.activate(old)
    return (lambda: box.activate(new)), {old, new}


def bad_upgrade(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    old, bad = box.stage("a: 1"), box.stage("a: 2")
    box.activate(old)
    box.gate_fails.add(bad)
    return (lambda: box.activate(bad)), {old}


def first(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    new = box.stage("a: 1")
    return (lambda: box.activate(new)), {new, None}


def bad_first(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    bad = box.stage("a: 1")
    box.gate_fails.add(bad)
    return (lambda: box.activate(bad)), {None}


def same_again(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    """The release it has, on a runtime that was installed anew."""
    old = box.stage("a: 1")
    box.activate(old)
    state.update("tiny", stale=True)
    return (lambda: box.activate(old)), {old}


def roll_back(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    old, new = box.stage("a: 1"), box.stage("a: 2")
    box.activate(old)
    box.activate(new)
    return (lambda: rollback.run({"instance": "tiny", "to": None, "by": "me"})), {old, new}


def started_again(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    old = box.stage("a: 1")
    box.activate(old)
    return (lambda: restart.run({"instance": "tiny"})), {old}


def successor(box: Machine) -> tuple[Callable[[], Any], set[str | None]]:
    """An instance that takes the place of another one."""
    box.activate(box.stage("b: 1", "old"), "old")
    new = box.stage("a: 1")
    return (lambda: box.activate(new, leaving=["old"])), {new, None}


SCENARIOS = [upgrade, bad_upgrade, first, bad_first, same_again, roll_back, started_again, successor]
GOING_ON = {
    "killed": lambda box: None,
    "powered off": lambda box: box.power_cut(),
}


def moments(box: Machine, action: Callable[[], Any]) -> int:
    """How many there are in the whole of it; nothing of it stays."""
    keep, copy = box.root, box.root.parent / "copy"
    shutil.copytree(keep, copy, symlinks=True)
    before = box.moments
    try:
        action()
    except Failure:
        pass
    shutil.rmtree(keep)
    copy.rename(keep)
    return box.moments - before


def check(box: Machine, may: set[str | None]) -> None:
    known, runs = state.instance("tiny"), box.runs("tiny")
    assert not known.get("activation")
    assert runs in may and box.current("tiny") == runs == known.get("gated")
    assert not known.get("stale")
    whole = [line for line in box.journal() if line["event"] in ENDS]  # parsed: no line is torn
    begun = {line["began"] for line in box.journal() if line["event"] == "activation"}
    # Each activation that was begun has one end; one that stopped before its first line has none to tell.
    assert sorted(line["began"] for line in whole) == sorted(begun)
    if whole and whole[-1]["event"] in ("activated", "rolled-back", "restarted"):
        assert whole[-1]["digest"] == runs
    held = known.get("held")
    assert (held or {}).get("digest") in (None, runs)
    assert bool(held) == bool([line for line in box.journal() if line["event"] == "held"])


@pytest.mark.parametrize("going_on", GOING_ON)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_cut_off_at_every_moment(
    scenario: Scenario, going_on: str, machine: Machine, tmp_path: Path  # noqa: F811
) -> None:
    box = machine
    action, may = scenario(box)
    count = moments(box, action)
    assert count > 10
    start = tmp_path.parent / f"{tmp_path.name}-start"
    shutil.copytree(tmp_path, start, symlinks=True)
    ended = set()
    for moment in range(count):
        shutil.rmtree(tmp_path)
        shutil.copytree(start, tmp_path, symlinks=True)
        assert box.stopped_at(moment, action)
        GOING_ON[going_on](box)
        resume.run({})
        check(box, may | ({box.runs("tiny")} if not box.journal() else set()))
        ended.add(box.runs("tiny"))
        if scenario is successor:
            assert (box.runs("old") is None) == (box.runs("tiny") is not None)
    assert ended == may or scenario in (bad_upgrade,)
