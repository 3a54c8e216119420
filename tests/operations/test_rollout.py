"""Waves in a run of pyinfra: who is switched when, what stops it, what is put back, what the report then says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import deploy
from tests.operations.rolling import MODEL, OLD, new_digest, rolling
from tests.operations.three import line, state


def report(folder: Path) -> dict[str, Any]:
    """The newest report of a run."""
    found: dict[str, Any] = json.loads(sorted((folder / "inventory/reports/home").glob("*.json"))[-1].read_text())
    return found


def test_canary_then_batches_in_order_and_never_too_many_down(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 8) as fleet:
        folder = fleet.folder(tmp_path)
        done = deploy(folder, "-y")
        assert done.returncode == 0, done.stdout
        assert [sorted(fleet.switched[:1]), *(sorted(fleet.switched[at : at + 2]) for at in (1, 3, 5, 7))] == [
            ["box-1"], ["box-2", "box-3"], ["box-4", "box-5"], ["box-6", "box-7"], ["box-8"],
        ]  # fmt: skip
        assert fleet.most_down == 2
        assert "Wave 1 of 5: box-1 (canary of cpu, vllm-0.27.1-cpu)" in done.stdout
        assert "Wave 2 of 5: box-2, box-3 (25 %)" in done.stdout
        before, in_waves = done.stdout.split("Starting operation: Wave 1", 1)
        assert "] No changes" in before and "] No changes" not in in_waves, done.stdout  # nothing of whom it is not for
        assert in_waves.count("] Success") == 8
        assert all("restarted" in state(done.stdout, f"box-{number}") for number in range(1, 9))
        # between two waves all that were switched are asked again, and after the last nobody is
        assert fleet.verbs("box-1") == ["lock", "release", "activate", *["serving"] * 4, "lock"]
        assert fleet.verbs("box-8") == ["lock", "release", "activate", "lock"]
        found = report(folder)
        assert found["end"] == "done" and found["waves"][0]["switched"] == ["box-1"]
        fleet.calls.clear()
        again = deploy(folder, "-y")
        assert again.returncode == 0 and fleet.calls == [], again.stdout
        assert all(state(again.stdout, f"box-{number}") == "serving, nothing to do" for number in range(1, 9))


def test_a_failed_canary_stops_the_fleet(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 4) as fleet:
        fleet.bad.add("box-1")
        folder = fleet.folder(tmp_path)
        done = deploy(folder, "-y")
    assert done.returncode == 1, done.stdout
    assert fleet.switched == ["box-1"] and not fleet.back
    assert "a chat completion comes back empty" in line(done.stdout, "box-1") and OLD in line(done.stdout, "box-1")
    for name in ("box-2", "box-3", "box-4"):
        assert state(done.stdout, name) == "not touched: the rollout stopped at box-1"
    assert (
        "gpufleet: the rollout stopped at box-1 in wave 1 of 4, and box-2, box-3, box-4 are not touched" in done.stdout
    )
    found = report(folder)
    assert (found["end"], found["exit_code"]) == ("failed", 1)
    assert found["boxes"]["box-1"]["failure"]["cause"] == "a chat completion comes back empty"
    assert found["boxes"]["box-1"]["failure"]["log"].startswith("engine: started\n")
    before_and_after = found["boxes"]["box-1"]["instances"][MODEL]
    assert (before_and_after["before"], before_and_after["after"]) == (OLD, OLD)
    assert found["boxes"]["box-2"]["outcome"] == "not touched"
    assert [wave["switched"] for wave in found["waves"]] == [["box-1"], None, None, None]


@pytest.mark.parametrize("how", ["bad", "dying"])
def test_by_setting_all_that_were_switched_go_back(tmp_path: Path, how: str) -> None:
    with rolling(tmp_path / "boxes", 5) as fleet:
        (fleet.bad if how == "bad" else fleet.dying).add("box-3" if how == "bad" else "box-1")
        folder = fleet.folder(tmp_path, batch=1, on_failure="put back all")
        done = deploy(folder, "-y")
        assert done.returncode == 1, done.stdout
        if how == "bad":
            assert fleet.switched == ["box-1", "box-2", "box-3"] and fleet.back == ["box-2", "box-1"]
            assert state(done.stdout, "box-2") == f"put back: serves {OLD}"
        else:
            assert fleet.switched == ["box-1"] and fleet.back == ["box-1"]
            assert "serves no more after it was switched: its service is failed" in line(done.stdout, "box-1")
        assert state(done.stdout, "box-5").startswith("not touched: the rollout stopped at box-")
        assert all(facts["instances"][MODEL]["current"] == OLD for facts in fleet.boxes.facts.values())
        instance = report(folder)["boxes"]["box-1"]["instances"][MODEL]
        assert (instance["before"], instance["planned"], instance["after"]) == (OLD, new_digest(), OLD)
        assert instance["put_back"]


def test_one_that_serves_no_more_stops_the_next_wave(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 4) as fleet:
        fleet.dying.add("box-1")
        done = deploy(fleet.folder(tmp_path), "-y")
    assert done.returncode == 1 and fleet.switched == ["box-1"] and not fleet.back, done.stdout
    assert state(done.stdout, "box-1") == "failed"


def test_a_box_that_fails_before_its_turn_stops_nobody_and_the_next_is_the_canary(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 4) as fleet:
        fleet.broken["box-1"] = {"release"}
        done = deploy(fleet.folder(tmp_path), "-y")
    assert done.returncode == 1, done.stdout
    assert fleet.switched == ["box-2", "box-3", "box-4"] and fleet.most_down == 1
    assert "no release today" in line(done.stdout, "box-1")
    assert "restarted" in state(done.stdout, "box-4")


def test_boxes_that_do_not_serve_yet_go_together_after_their_canary(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", box_1=OLD, box_2=None, box_3=None, box_4=OLD) as fleet:
        done = deploy(fleet.folder(tmp_path), "-y", "--parallel", "1")
    assert done.returncode == 0, done.stdout
    assert fleet.switched[0] == "box-1" and set(fleet.switched[1:3]) == {"box-2", "box-3"}
    assert "Wave 2 of 3: box-2, box-3 (not serving yet)" in done.stdout


def test_limit_and_boxes_without_change(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", box_1=new_digest(), box_2=OLD, box_3=OLD) as fleet:
        folder = fleet.folder(tmp_path)
        done = deploy(folder, "-y", "--limit", "box-1", "--limit", "box-3")
        assert done.returncode == 0 and fleet.switched == ["box-3"], done.stdout
        assert "Wave 1 of 1: box-3" in done.stdout
        assert fleet.verbs("box-1") == ["lock", "lock"] and fleet.verbs("box-2") == []
        assert report(folder)["limit"] == ["box-1", "box-3"] == list(report(folder)["boxes"])
        assert "box-2" not in done.stdout.split("Grand total")[1]


def test_settings_of_the_run_have_to_be_the_same(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 2) as fleet:
        folder = fleet.boxes.folder(tmp_path, box_1={"rollout": {"batch": 1}}, box_2={"rollout": {"batch": "50%"}})
        done = deploy(folder, "-y")
        assert done.returncode == 2 and fleet.calls == [], done.stdout
        assert "rollout.batch is 1 for box-1" in done.stdout and "'50%' for box-2" in done.stdout
        assert report(folder)["end"] == "wrong" and "rollout.batch" in report(folder)["message"]


@pytest.mark.parametrize("options", [["--fail-percent", "0"], ["--json"], ["--parallel", "1"], ["-v"]])
def test_a_failure_is_one_whatever_the_options(tmp_path: Path, options: list[str]) -> None:
    with rolling(tmp_path / "boxes", 3) as fleet:
        fleet.bad.add("box-2")
        folder = fleet.folder(tmp_path, batch=1, on_failure="put back all")
        done = deploy(folder, "-y", *options)
    assert done.returncode == 1, done.stdout
    assert fleet.switched == ["box-1", "box-2"] and fleet.back == ["box-1"]
    assert report(folder)["end"] == "failed" and state(done.stdout, "box-3").startswith("not touched")


def test_a_run_that_pyinfra_ends_says_what_it_did_not_reach(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 3) as fleet:
        fleet.broken["box-1"] = {"release"}
        folder = fleet.folder(tmp_path)
        done = deploy(folder, "-y", "--fail-percent", "0")
    assert done.returncode == 1 and fleet.switched == [], done.stdout
    assert state(done.stdout, "box-2") == "not touched: the run ended before its turn"
    assert fleet.verbs("box-3") == ["lock", "release", "lock"]


@pytest.mark.parametrize("option", ["--serial", "--no-wait", "--retry=2"])
def test_what_cannot_be_made_right_is_refused(tmp_path: Path, option: str) -> None:
    with rolling(tmp_path / "boxes", 2) as fleet:
        done = deploy(fleet.folder(tmp_path), "-y", option)
    assert done.returncode == 2 and "is not for fleets" in done.stdout, done.stdout
    assert fleet.boxes.logins == {}


def test_a_dry_run_shows_the_change_and_touches_nothing(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", 3) as fleet:
        folder = fleet.folder(tmp_path)
        done = deploy(folder, "--dry")
        assert done.returncode == 5 and fleet.calls == [], done.stdout
        assert report(folder)["end"] == "would change" and report(folder)["dry"]


def test_an_owners_drop_in_is_named_and_left_and_nothing_is_changed_for_it(tmp_path: Path) -> None:
    path = f"/etc/systemd/system/gpufleet-{MODEL}.service.d/override.conf"
    with rolling(tmp_path / "boxes", box_1=new_digest()) as fleet:
        fleet.boxes.facts["box-1"]["instances"][MODEL]["service"]["drop_ins"] = [path]
        folder = fleet.folder(tmp_path)
        for option in ("--dry", "-y", "-y"):
            done = deploy(folder, option)
            assert done.returncode == 0 and fleet.calls == [], done.stdout
            assert f"warning GF611 unit-drop-in: {path} changes the unit of {MODEL}" in done.stdout
            assert state(done.stdout, "box-1") == "serving, nothing to do"


def test_an_owners_unit_is_asked_for_said_and_told_to_the_box(tmp_path: Path) -> None:
    unit = "vllm.service"
    found = {"id": unit, "there": True, "active": "active", "state": "enabled", "wanted_by": ["multi-user.target"]}
    with rolling(tmp_path / "boxes", box_1=None) as fleet:
        fleet.boxes.facts["box-1"]["units"] = {unit: found}
        fleet.boxes.facts["box-1"]["ports"] = {"8000": {"pid": 9, "command": "vllm", "unit": unit}}
        folder = fleet.folder(tmp_path, {"model": MODEL, "port": 8000})
        done = deploy(folder, "-y")
        assert done.returncode == 3 and f'"replaces": ["{unit}"]' in done.stdout, done.stdout
        folder = fleet.folder(tmp_path, {"model": MODEL, "port": 8000, "replaces": [unit]})
        done = deploy(folder, "-y")
        assert done.returncode == 0 and f"new; takes the place of {unit}, stopped for it" in done.stdout, done.stdout
        assert fleet.replaced == {"box-1": [unit]}
        assert f'"units": ["{unit}"]' in fleet.boxes.scripts["box-1"]


def test_boxes_that_were_adopted_in_the_run_get_their_unit_back_too(tmp_path: Path) -> None:
    unit = "vllm.service"
    runs = {"id": unit, "there": True, "active": "active", "state": "enabled", "wanted_by": ["multi-user.target"]}
    with rolling(tmp_path / "boxes", box_1=OLD, box_2=None, box_3=None, box_4=None, box_5=None) as fleet:
        for name in ("box-1", "box-2", "box-3", "box-5"):
            fleet.boxes.facts[name]["units"] = {unit: runs}
        fleet.boxes.facts["box-4"]["units"] = {unit: {**runs, "active": "inactive", "state": "disabled"}}
        fleet.bad.add("box-5")
        entry = {"model": MODEL, "port": 8000, "replaces": [unit]}
        folder = fleet.folder(tmp_path, entry, on_failure="put back all")
        done = deploy(folder, "-y")
        facts = fleet.boxes.facts
    assert done.returncode == 1, done.stdout
    assert sorted(fleet.back) == ["box-1", "box-2", "box-3"] and fleet.back[-1] == "box-1"  # box-5 did it by itself
    assert fleet.given_back == {name: [unit] for name in fleet.back}
    assert state(done.stdout, "box-2") == f"put back: {unit} runs again"
    assert state(done.stdout, "box-1") == f"put back: serves {OLD}"
    # nothing served on box-4, neither then nor before: it keeps what it has now
    assert facts["box-4"]["instances"][MODEL]["current"] == new_digest()
    instance = report(folder)["boxes"]["box-2"]["instances"][MODEL]
    assert (instance["before"], instance["after"], instance["put_back"]) == (None, None, True)


def test_a_unit_that_does_not_come_back_is_said(tmp_path: Path) -> None:
    unit = "vllm.service"
    runs = {"id": unit, "there": True, "active": "active", "state": "enabled", "wanted_by": ["multi-user.target"]}
    with rolling(tmp_path / "boxes", box_1=None, box_2=None) as fleet:
        for name in ("box-1", "box-2"):
            fleet.boxes.facts[name]["units"] = {unit: runs}
        fleet.bad.add("box-2")
        fleet.broken["box-1"] = {"undo"}
        entry = {"model": MODEL, "port": 8000, "replaces": [unit]}
        done = deploy(fleet.folder(tmp_path, entry, on_failure="put back all"), "-y")
    assert done.returncode == 1 and fleet.back == [], done.stdout
    assert "no undo today" in line(done.stdout, "box-1")
