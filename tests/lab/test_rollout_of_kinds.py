"""A fleet of unlike boxes: a canary of each kind in one wave, then batches; what somebody put beside a unit stays."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.clients import completes
from tests.lab.rollouts import MODEL, UNIT, Fleet, assert_in_waves, report
from tests.lab.support import small_lab

pytestmark = [pytest.mark.lab, pytest.mark.large]

CPU, TURING, AMPERE = "cpu-only", "dual-2080ti-nv2", "dual-3090-nv4"
TOPOLOGIES = [CPU, TURING, CPU, AMPERE, TURING, AMPERE, CPU]
BOXES = [f"lab-{number}" for number in range(1, len(TOPOLOGIES) + 1)]
CANARIES, OTHERS = ["lab-1", "lab-2", "lab-4"], ["lab-3", "lab-5", "lab-6", "lab-7"]
SETTINGS: dict[str, Any] = {"rollout": {"canary": True, "batch": 2, "max_unavailable": 3}}
DROP_IN = f"/etc/systemd/system/{UNIT}.d/override.conf"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with small_lab("kinds", 77, TOPOLOGIES) as lab:
        found = Fleet(lab, lab.standin_folder(tmp_path_factory.mktemp("home"), {box: {} for box in BOXES}), BOXES)
        found.want(**SETTINGS)
        done = found.deploy()
        assert done.code == 0, done.output
        yield found


def test_one_canary_of_each_kind_goes_first_all_in_one_wave(fleet: Fleet) -> None:
    waves = [CANARIES, ["lab-3", "lab-5"], ["lab-6", "lab-7"]]
    assert_in_waves(fleet, waves, 3, **SETTINGS, serve_args={"max-num-seqs": 3})
    told = report(fleet)["waves"]
    assert [wave["boxes"] for wave in told] == [wave["switched"] for wave in told] == waves
    assert told[0]["reason"] == "canaries of 3 kinds"


def test_what_fails_on_one_kind_stops_all_before_the_second_box_of_any(fleet: Fleet) -> None:
    pids, releases = fleet.pids(), fleet.releases()
    page = fleet.folder / "group_data" / "sm75.py"
    page.write_text('serve_env = {"STANDIN": "fail-completions"}\n')
    fleet.want(**SETTINGS, serve_args={"max-num-seqs": 4})
    with fleet.clients(OTHERS) as clients:
        done = fleet.deploy()
    page.unlink()
    assert done.code == 1, done.output
    assert "a chat completion fails with 500" in done.problem("lab-2")
    assert f"release {releases['lab-2']} serves again" in done.problem("lab-2")
    assert re.search(r"the rollout stopped at lab-2 in wave 1 of 3", done.output), done.output
    assert [done.state(box).split(":")[0] for box in OTHERS] == ["not touched"] * len(OTHERS)
    # The canaries of the other kinds passed, and keep what they have.
    after = fleet.releases()
    assert {box: after[box] == releases[box] for box in BOXES} == {box: box not in ("lab-1", "lab-4") for box in BOXES}
    assert {box: pid == pids[box] for box, pid in fleet.pids().items()} == {box: box in OTHERS for box in BOXES}
    assert not any(clients.outages().values())
    assert all(completes(fleet.address(box), MODEL) for box in CANARIES)


def test_then_only_those_that_lag_behind_are_switched(fleet: Fleet) -> None:
    pids = fleet.pids()
    done = fleet.deploy()
    assert done.code == 0, done.output
    assert len(set(fleet.releases().values())) == 1
    assert {box for box, pid in fleet.pids().items() if pid == pids[box]} == {"lab-1", "lab-4"}
    # A kind whose canary passed before has another one all the same: the first of those that lag behind.
    assert report(fleet)["waves"][0]["boxes"] == ["lab-2", "lab-3", "lab-6"]


def test_a_drop_in_is_named_by_all_and_stays_and_nothing_is_restarted_for_it(fleet: Fleet) -> None:
    pids = fleet.pids()
    fleet.lab.sh("lab-1", f"mkdir -p $(dirname {DROP_IN}) && printf '[Service]\\nEnvironment=MINE=1\\n' > {DROP_IN}")
    for unread in (True, False):
        for options in (["--dry"], ["-y"]):
            done = fleet.deploy(*options)
            assert done.code == 0, done.output
            assert done.state("lab-1") == "serving, nothing to do"
            assert ("GF613 unit-unread" in done.output) is unread, done.output
            assert f"warning GF611 unit-drop-in: {DROP_IN} changes the unit of {MODEL}" in done.output
        fleet.lab.sh("lab-1", "systemctl daemon-reload")
    for verb in ("status", "diff"):
        shown = fleet.command(verb, "--limit", "lab-1")
        assert shown.returncode == 0 and f"lab-1: drift: {DROP_IN}" in shown.stdout, shown.stdout
    assert fleet.pids() == pids
    restarted = fleet.command("restart", "lab-1")
    assert restarted.returncode == 0, restarted.stdout
    assert fleet.lab.sh("lab-1", f"tr '\\0' '\\n' < /proc/$(systemctl show -P MainPID {UNIT})/environ | grep MINE")


def test_the_remedy_takes_it_away_and_leaves_our_unit(fleet: Fleet) -> None:
    fleet.lab.sh("lab-1", f"systemctl revert {UNIT}")
    fleet.lab.sh("lab-1", f"test ! -e {DROP_IN} && test -e /etc/systemd/system/{UNIT}")
    done = fleet.deploy()
    assert done.code == 0 and "GF61" not in done.output, done.output
    shown = json.loads(fleet.command("status", "--limit", "lab-1", "--json").stdout)
    assert shown["boxes"][0]["drift"] == []


def test_a_unit_in_force_in_place_of_ours_refuses_the_run(fleet: Fleet) -> None:
    other = f"/etc/systemd/system.control/{UNIT}"
    fleet.lab.sh("lab-1", f"mkdir -p {other.rsplit('/', 1)[0]} && ln -s /dev/null {other} && systemctl daemon-reload")
    pids = fleet.pids()
    done = fleet.deploy()
    assert done.code == 3 and fleet.pids() == pids, done.output
    line = done.problem("lab-1")
    assert f"{other} masks the unit of {MODEL}" in line and f"`rm {other} && systemctl daemon-reload`" in line
    fleet.lab.sh("lab-1", f"rm {other} && systemctl daemon-reload")
    done = fleet.deploy()
    assert done.code == 0 and fleet.pids() == pids, done.output
