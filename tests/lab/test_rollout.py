"""An upgrade of many boxes: in the order promised, with no more down than allowed; a bad one stops at the canary."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.clients import completes
from tests.lab.rollouts import BOOKS, MODEL, Fleet, assert_in_waves, report
from tests.lab.support import Done, small_lab, started, wait_for

pytestmark = pytest.mark.lab

EIGHT = [f"lab-{number}" for number in range(1, 9)]
TWENTY = [f"lab-{number}" for number in range(1, 21)]
CANARY, OTHERS = "lab-1", EIGHT[1:]
ARGS = {"max-num-seqs": 3}
# On a CPU the speed has no floor but where it is set.
SETTINGS: dict[str, Any] = {"rollout": {"canary": True, "batch": "25%", "max_unavailable": "25%", "speed_floor": 0.5}}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with small_lab("roll", 86, ["cpu-only"] * len(EIGHT)) as lab:
        found = Fleet(lab, lab.standin_folder(tmp_path_factory.mktemp("home"), {box: {} for box in EIGHT}), EIGHT)
        found.want(**SETTINGS)
        done = found.deploy()
        assert done.code == 0, done.output
        yield found


def test_an_upgrade_goes_in_waves(fleet: Fleet) -> None:
    waves = [[CANARY], ["lab-2", "lab-3"], ["lab-4", "lab-5"], ["lab-6", "lab-7"], ["lab-8"]]
    assert_in_waves(fleet, waves, 2, **SETTINGS, serve_args=ARGS)


@pytest.mark.large
def test_an_upgrade_of_twenty_boxes(tmp_path: Path) -> None:
    with small_lab("rol20", 85, ["cpu-only"] * len(TWENTY)) as lab:
        fleet = Fleet(lab, lab.standin_folder(tmp_path, {box: {} for box in TWENTY}), TWENTY)
        fleet.want(**SETTINGS)
        done = fleet.deploy()
        assert done.code == 0, done.output
        waves = [TWENTY[:1], TWENTY[1:6], TWENTY[6:11], TWENTY[11:16], TWENTY[16:]]
        assert_in_waves(fleet, waves, 5, **SETTINGS, serve_args=ARGS)


BAD = {
    "fail-completions": "a chat completion fails with 500: .*EngineCore encountered an issue",
    "slow": "it decodes [0-9.]+ tokens/s; the median of its last .* the floor",
    "no-drafts": "no draft was made",
    "crash-loop": "RuntimeError: the stand-in crashes when it starts, as STANDIN says",
    "never-ready": "did not answer on port 8000 within 8 s",
}


IN_SECONDS = ("fail-completions",)


@pytest.mark.parametrize(
    "mood", [pytest.param(each, marks=[] if each in IN_SECONDS else pytest.mark.large) for each in BAD]
)
def test_a_bad_release_is_stopped_at_the_canary(fleet: Fleet, mood: str) -> None:
    pids, releases, known = fleet.pids(), fleet.releases(), fleet.journal(CANARY)
    page = fleet.folder / "files" / "models" / "standin.yaml"
    whole = page.read_text()
    if mood == "never-ready":  # which costs the whole time that a start may take
        model = yaml.safe_load(whole)
        page.write_text(yaml.safe_dump({**model, "gate": {**model["gate"], "timeout": 8}}))
    fleet.want(**SETTINGS, serve_args=ARGS, serve_env={"STANDIN": mood})
    # Where others ask it, too, an instance is not called slow.
    with fleet.clients(OTHERS if mood == "slow" else EIGHT) as clients:
        done = fleet.deploy()
    page.write_text(whole)
    assert done.code == 1, done.output
    assert re.search(BAD[mood], done.problem(CANARY)), done.output
    assert f"release {releases[CANARY]} serves again" in done.problem(CANARY)
    assert_no_success(fleet, done, releases)
    # It serves again what it served before, and nobody touched the others.
    assert fleet.releases() == releases
    same = {box: pid == pids[box] for box, pid in fleet.pids().items()}
    assert same == {CANARY: False, **dict.fromkeys(OTHERS, True)}
    down = clients.outages()
    assert not any(down[box] for box in OTHERS)
    assert mood == "slow" or down[CANARY]
    assert completes(fleet.address(CANARY), MODEL)
    new = [event["event"] for event in fleet.journal(CANARY)[len(known) :]]
    assert "put-back" in new and "activated" not in new


def assert_no_success(fleet: Fleet, done: Done, releases: dict[str, str]) -> None:
    """Neither the table nor the report calls the way back a success, nor says that the others were upgraded."""
    assert done.state(CANARY).startswith("failed"), done.output
    assert all(done.state(box).startswith("not touched") for box in OTHERS), done.output
    told = report(fleet)
    assert (told["end"], told["exit_code"]) == ("failed", 1)
    assert {box: item["outcome"] for box, item in told["boxes"].items()} == {
        CANARY: "failed", **dict.fromkeys(OTHERS, "not touched"),
    }  # fmt: skip
    assert told["boxes"][CANARY]["failure"]["cause"] in done.problem(CANARY)
    for box, item in told["boxes"].items():
        assert (item["instances"]["standin"]["before"], item["instances"]["standin"]["after"]) == (releases[box],) * 2
        assert item["instances"]["standin"]["gate"] is None


def test_then_the_good_release_is_deployed_and_nothing_is_left_to_do(fleet: Fleet) -> None:
    fleet.want(**SETTINGS, serve_args=ARGS)
    pids = fleet.pids()
    for _ in range(2):
        done = fleet.deploy()
        assert [done.state(box) for box in EIGHT] == ["serving, nothing to do"] * len(EIGHT), done.output
    assert fleet.pids() == pids


def test_of_two_deploys_the_second_names_the_first(fleet: Fleet, tmp_path: Path) -> None:
    second = Fleet(fleet.lab, shutil.copytree(fleet.folder, tmp_path / "second"), EIGHT)
    second.want(**SETTINGS, serve_args={"max-num-seqs": 9})
    before = fleet.releases()
    fleet.want(**SETTINGS, serve_args={"max-num-seqs": 4}, serve_env={"STANDIN_START_SECONDS": "4"})
    first = started(fleet.folder, ["-y", "--limit", CANARY, "--limit", "lab-2"])
    place = fleet.root(CANARY) / BOOKS / "lock.json"
    wait_for(place.exists)
    held = json.loads(place.read_text())
    done = second.deploy()
    assert done.code == 4, done.output
    assert f"run {held['run']} (deploy of {fleet.folder}/inventory/home.py" in done.output
    assert report(second)["end"] == "locked"
    output, _ = first.communicate(timeout=300)
    assert first.returncode == 0, output
    assert not place.exists()
    after = fleet.releases()
    assert {box: after[box] == before[box] for box in EIGHT} == {box: box not in (CANARY, "lab-2") for box in EIGHT}
    assert after[CANARY] == report(fleet)["boxes"][CANARY]["instances"]["standin"]["planned"]


def test_a_rollback_takes_its_restart_and_no_more(fleet: Fleet) -> None:
    pids, releases, served = fleet.pids(), fleet.releases(), downloads(fleet)
    installed = "find /opt/gpufleet/runtimes /opt/gpufleet/models /opt/gpufleet/store -printf '%p %C@\\n' | sort"
    files = fleet.lab.sh(CANARY, installed)
    with fleet.clients() as clients:
        done = fleet.command("rollback", CANARY)
    assert done.returncode == 0, done.stdout
    down = clients.outages()
    assert {box: len(found) for box, found in down.items()} == {CANARY: 1, **dict.fromkeys(OTHERS, 0)}
    assert {box: pid == pids[box] for box, pid in fleet.pids().items()} == {
        CANARY: False,
        **dict.fromkeys(OTHERS, True),
    }
    assert fleet.releases() == {**releases, CANARY: releases["lab-3"]}
    assert (downloads(fleet), fleet.lab.sh(CANARY, installed)) == (served, files)


def downloads(fleet: Fleet) -> int:
    """How often something was fetched of the lab's server."""
    return (fleet.lab.where.home / "http.log").read_text().count('"GET ')


@pytest.mark.large
def test_then_it_is_held_until_that_is_undone(fleet: Fleet) -> None:
    before, pids = fleet.releases(), fleet.pids()
    fleet.want(**SETTINGS, serve_args={"max-num-seqs": 4}, serve_env={"STANDIN_START_SECONDS": "4"})
    done = fleet.deploy("--limit", CANARY, "--limit", "lab-2")
    assert done.code == 0 and "on hold" in done.state(CANARY), done.output
    assert (fleet.releases(), fleet.pids()) == (before, pids)
    assert fleet.known(CANARY)["held"]["digest"] == before[CANARY]
    undone = fleet.command("unhold", CANARY)
    assert undone.returncode == 0, undone.stdout
    assert fleet.pids() == pids
    done = fleet.deploy("--limit", CANARY, "--limit", "lab-2")
    assert done.code == 0, done.output
    assert fleet.releases() == {**before, CANARY: before["lab-2"]}
