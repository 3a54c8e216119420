"""Which releases stay on a box, each with what activates it, so that a rollback has somewhere to go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hostkit import activate, gates, named, release, restart, rollback, switch
from hostkit.errors import Failure
from tests.unit.activation_box import Machine, make


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return make(tmp_path, monkeypatch)


def test_the_whole_spec_is_kept_and_goes_with_its_release(machine: Machine) -> None:
    digests = []
    for number in range(5):
        digests.append(machine.stage(f"a: {number}"))
        machine.activate(digests[-1], leaving=["other"], replaces=["vllm.service"])
    kept = gates.read("tiny", digests[-1])
    wanted = machine.spec(digests[-1])
    del wanted["instead_of"], wanted["replaces"]
    assert kept == wanted
    left = sorted(path.stem for path in (machine.root / "instances/tiny/gates").iterdir())
    assert left == sorted(path.name for path in (machine.root / "instances/tiny/releases").iterdir())
    assert len(left) == switch.KEEP


def test_what_a_rollback_would_go_to_stays_whatever_is_newer(machine: Machine) -> None:
    first, second = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(first)
    machine.activate(second)
    for number in range(3, 6):
        bad = machine.stage(f"a: {number}")
        machine.gate_fails.add(bad)
        with pytest.raises(Failure):
            machine.activate(bad)
    restart.run({"instance": "tiny"})
    assert (
        first in named.kept_releases("tiny")
        and rollback.run({"instance": "tiny", "to": None, "by": "me"})["digest"] == first
    )


def test_more_releases_are_kept_when_asked(machine: Machine) -> None:
    for number in range(7):
        activate.run({**machine.spec(machine.stage(f"a: {number}")), "keep": 5})
    assert len(list((machine.root / "instances/tiny/releases").iterdir())) == 5


def test_kept_gates_that_cannot_be_read_count_as_none(machine: Machine) -> None:
    digest = machine.stage("a: 1")
    machine.activate(digest)
    for text in ("{", "[]", json.dumps({"instance": "tiny"})):
        (machine.root / "instances/tiny/gates" / f"{digest}.json").write_text(text)
        assert gates.read("tiny", digest) is None
    assert str(machine.root / "instances") == release.INSTANCES
