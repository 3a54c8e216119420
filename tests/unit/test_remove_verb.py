"""The kit's verbs `removable` and `remove`: what goes, what stays, in which order, and that it can be done again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from hostkit import removable, remove, remove_packages, remove_places, remove_user, state
from hostkit.errors import Failure
from tests.unit.removal_box import OWNERS, SHA, Cut, RemovalBox

EVERYTHING = {"instance": None, "models": True, "packages": True}
BUT_MODELS: dict[str, Any] = {"instance": None, "models": False, "packages": False}


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemovalBox:
    return RemovalBox(tmp_path, monkeypatch)


def found(spec: dict[str, Any], which: str = "goes") -> dict[str, list[str]]:
    """The names of what goes or stays, by kind."""
    names: dict[str, list[str]] = {}
    for item in removable.run(spec)[which]:
        names.setdefault(item["kind"], []).append(item["name"])
    return names


def test_a_box_is_as_it_was_before(box: RemovalBox) -> None:
    before, packages = box.tree(), dict(box.packages)
    box.deploy()
    answer = remove.run(EVERYTHING)
    assert answer == {"started": [OWNERS], "failed": []}
    assert (box.tree(), box.packages) == (before, packages)
    assert box.running == {OWNERS}


def test_what_goes_is_shown_first_and_nothing_is_changed_by_that(box: RemovalBox) -> None:
    box.deploy()
    before = box.tree()
    answer = removable.run(EVERYTHING)
    assert box.tree() == before and answer["back"] == [OWNERS] and answer["instances"] == ["old", "tiny"]
    why = {item["name"]: item["why"] for item in answer["goes"]}
    assert (why["tiny"], why["old"]) == ("serves on port 8000", "does not serve")
    names = found(EVERYTHING)
    assert names["runtime"] == [".engine-2.building", "engine-1"] and names["model"] == ["tiny/r1"]
    assert names["packages"] == ["cuda-toolkit-13-0 g++ libcublas-13-0"] and names["holds"] == ["2 packages"]
    assert names["unit"] == ["gpufleet-host.service", "gpufleet-resume.service"] and names["user"] == ["gpufleet"]
    assert found(EVERYTHING, "stays") == {}


def test_models_and_packages_stay_unless_they_are_asked_for(box: RemovalBox) -> None:
    box.deploy()
    stays = found(BUT_MODELS, "stays")
    assert stays["model"] == ["tiny/r1"] and "3 packages" in stays["packages"][0]
    remove.run(BUT_MODELS)
    kept = {path for path in box.tree() if path.startswith("opt")}
    assert kept == {
        *("opt", "opt/models", "opt/models/.store", f"opt/models/.store/{SHA}", f"opt/models/.store/{SHA}/weights"),
        *("opt/models/tiny", "opt/models/tiny/r1", "opt/models/tiny/r1/config.json", "opt/models/tiny/r1/weights"),
        "opt/models/tiny/r1/.gpufleet-complete",
    }
    assert box.packages["cuda-toolkit-13-0"] == "install", "nobody holds it any more"
    assert (box.root / "apt/gpufleet-cuda.sources").exists() and not (box.root / "apt/51gpufleet").exists()
    box.kit()
    assert removable.run(BUT_MODELS)["goes"] == [] and remove.run(BUT_MODELS) == {"started": [], "failed": []}


def test_a_linked_model_loses_its_link_and_nothing_else(box: RemovalBox) -> None:
    box.kit()
    own = box.link_a_model()
    assert removable.run(BUT_MODELS)["goes"][0]["why"] == f"to {own}, which stays"
    for _ in range(2):
        remove.run(EVERYTHING)
        assert not (box.root / "opt").exists() and (own / "config.json").exists()


def test_a_model_of_links_that_somebody_put_there_stays_whole(box: RemovalBox) -> None:
    """As the hub's cache has one: each file is a link to where it lies."""
    box.deploy()
    blob = box.put("opt/models/cache/blobs/00ff")
    (box.root / "opt/models/theirs").mkdir()
    (box.root / "opt/models/theirs/model.safetensors").symlink_to(blob)
    assert str(box.root / "opt/models/theirs/model.safetensors") in found(EVERYTHING, "stays")["other"]
    remove.run(EVERYTHING)
    assert (box.root / "opt/models/theirs/model.safetensors").read_text() == "x"


@pytest.mark.parametrize("spec", [EVERYTHING, BUT_MODELS], ids=["everything", "but models"])
def test_cut_off_at_any_step_and_done_again_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]
) -> None:
    (tmp_path / "whole").mkdir()
    whole = RemovalBox(tmp_path / "whole", monkeypatch)
    whole.deploy()
    whole.left = 10_000
    remove.run(spec)
    steps = 10_000 - whole.left
    assert steps > 40
    for step in range(steps):
        (tmp_path / str(step)).mkdir()
        box = RemovalBox(tmp_path / str(step), monkeypatch)
        box.deploy()
        box.left = step
        with pytest.raises(Cut):
            remove.run(spec)
        box.left = 10_000
        box.kit()  # the look before the second call brings it
        remove.run(spec)
        assert box.tree() == whole.tree(), f"cut off at step {step}"
        assert (box.packages, box.running) == (whole.packages, whole.running), f"cut off at step {step}"


def test_one_instance_goes_and_the_rest_stays(box: RemovalBox) -> None:
    box.deploy()
    spec = {"instance": "tiny", "models": False, "packages": False}
    answer = removable.run(spec)
    assert [(item["kind"], item["name"]) for item in answer["goes"]] == [("instance", "tiny")]
    assert answer["back"] == [OWNERS] and answer["stays"] == []
    before = set(box.tree())
    assert remove.run(spec) == {"started": [OWNERS], "failed": []}
    gone = before - set(box.tree())
    assert {path for path in gone if "tiny" not in path} == set()
    assert not {path for path in box.tree() if "tiny" in path and not path.startswith("opt/models")}
    assert list(state.load()["instances"]) == ["old"]
    last = json.loads((box.root / "var/lib/gpufleet/journal.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["instance"], last["started"]) == ("removed", "tiny", [OWNERS])
    assert removable.run(spec)["goes"] == [] and remove.run(spec) == {"started": [], "failed": []}


def test_an_old_unit_that_does_not_start_is_told_and_keeps_nothing_on_the_box(box: RemovalBox) -> None:
    before = box.tree()
    box.deploy()
    box.unwilling.add(OWNERS)
    answer = remove.run(EVERYTHING)
    assert answer["started"] == [] and answer["failed"][0].startswith(f"{OWNERS} does not start. look at")
    assert box.tree() == before


def test_what_others_put_there_stays_and_is_named(box: RemovalBox) -> None:
    box.deploy()
    theirs = [
        box.put("opt/notes.txt"),
        box.put("opt/store/readme"),
        box.put("opt/runtimes/by-hand/x"),
        box.put("opt/models/big/by-hand/model.gguf"),
        box.put("opt/builds/log"),
    ]
    assert sorted(found(EVERYTHING, "stays")["other"]) == sorted(
        str(path if path.parent.name in ("opt", "store", "builds") else path.parent) for path in theirs
    )
    for number in range(6):
        box.put(f"opt/store/more-{number}")
    assert f"7 things in {box.root}/opt/store" in found(EVERYTHING, "stays")["other"]
    remove.run(EVERYTHING)
    assert all(path.exists() for path in theirs)
    assert not (box.root / "opt/kit").exists() and not (box.root / "var/lib/gpufleet").exists()


def test_a_folder_on_another_disk_is_emptied_of_ours_and_stays(box: RemovalBox) -> None:
    box.deploy()
    disk = box.root / "mnt"
    disk.mkdir()
    (box.root / "opt/runtimes").rename(disk / "runtimes")
    (box.root / "opt/runtimes").symlink_to(disk / "runtimes")
    (box.root / "opt/models").rename(disk / "models")
    (box.root / "opt/models").symlink_to(disk / "models")
    theirs = box.put("mnt/models/other/file")
    remove.run(EVERYTHING)
    assert list((disk / "runtimes").iterdir()) == [] and theirs.exists()
    assert not os.path.lexists(box.root / "opt/runtimes")
    assert [path.name for path in (disk / "models").iterdir()] == ["other"]


def test_a_model_without_its_mark_is_ours_by_its_files(box: RemovalBox) -> None:
    box.deploy()
    (box.root / "opt/models/tiny/r1/.gpufleet-complete").unlink()
    remove.run(EVERYTHING)
    assert not (box.root / "opt").exists()


def test_packages_that_others_need_stay(box: RemovalBox) -> None:
    box.deploy()
    box.packages["build-essential"], box.needs["build-essential"] = "install", "g++"
    assert remove_packages.find() == (["cuda-toolkit-13-0", "libcublas-13-0"], ["g++"])
    assert found(EVERYTHING, "stays")["packages"] == ["g++"]
    remove.run(EVERYTHING)
    assert set(box.packages) == {"bash", "build-essential", "g++"}


def test_a_file_that_cannot_be_removed_is_named(box: RemovalBox, monkeypatch: pytest.MonkeyPatch) -> None:
    path = box.put("opt/store/x")

    def refuse(path: str) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(Failure, match=rf"{path} cannot be removed: Operation not permitted.*gpufleet remove"):
        remove_places.delete(str(path))


def test_a_user_with_processes_is_not_removed(box: RemovalBox, monkeypatch: pytest.MonkeyPatch) -> None:
    box.deploy()
    monkeypatch.setattr(remove_user, "SECONDS", 0)
    monkeypatch.setattr(remove_user, "processes", lambda uid: ["python3 (pid 7)"])
    with pytest.raises(Failure, match=r"run still: python3 \(pid 7\).*call `gpufleet remove` again"):
        remove.run(EVERYTHING)
    monkeypatch.setattr(remove_user, "processes", lambda uid: [])
    box.kit()
    remove.run(EVERYTHING)
    assert not (box.root / "user").exists() and not (box.root / "opt").exists()


@pytest.fixture
def disk(box: RemovalBox) -> Path:
    """Another disk that /opt/gpufleet/models is a link to, with something of the owner's."""
    box.deploy()
    found = box.root / "disk"
    (box.root / "opt/models").rename(found)
    (found / "notes.txt").write_text("the owner's")
    (box.root / "opt/models").symlink_to(found)
    (box.root / "var/lib/gpufleet/models-home.json").write_text(json.dumps({"path": str(found)}))
    return found


def test_models_on_another_disk_stay_there(box: RemovalBox, disk: Path) -> None:
    assert [item["name"] for item in removable.run(BUT_MODELS)["stays"] if item["kind"] == "model"] == ["tiny/r1"]
    remove.run(BUT_MODELS)
    assert not (box.root / "opt").exists() and (disk / "tiny/r1/weights").exists()


def test_models_on_another_disk_go_when_they_are_asked_for(box: RemovalBox, disk: Path) -> None:
    remove.run(EVERYTHING)
    assert not (box.root / "opt").exists() and [path.name for path in disk.iterdir()] == ["notes.txt"]


def test_models_that_a_call_before_left_on_another_disk_are_found_again(box: RemovalBox, disk: Path) -> None:
    remove.run(BUT_MODELS)
    theirs = box.put("disk/own/r1/weights")
    (disk / "own/latest").symlink_to("r1")  # the box is its owner's again
    box.kit()
    without = {**EVERYTHING, "packages": False}
    assert found(without, "goes").get("model") is None  # nothing on the box leads there
    asked = {**without, "home": str(disk)}
    assert found(asked, "goes")["model"] == ["tiny/r1"]
    assert found({**asked, "models": False}, "stays")["model"] == ["tiny/r1"]
    remove.run({**asked, "models": False})
    assert (disk / "tiny/r1/weights").exists()
    box.kit()
    remove.run(asked)
    assert sorted(path.name for path in disk.iterdir()) == ["notes.txt", "own"]
    assert theirs.exists() and (disk / "own/latest").is_symlink()
    box.kit()
    assert removable.run(asked)["goes"] == []


def test_that_is_cut_off_at_any_point_and_done_again(box: RemovalBox, disk: Path) -> None:
    remove.run(BUT_MODELS)
    shutil.copytree(disk, box.root / "aside", symlinks=True)
    asked, steps = {**EVERYTHING, "packages": False, "home": str(disk)}, 0
    while True:
        box.kit()
        box.left = steps
        try:
            remove.run(asked)
            break
        except Cut:
            box.left = 1 << 30
            remove.run(asked)
            assert [path.name for path in disk.iterdir()] == ["notes.txt"], steps
            shutil.rmtree(disk)
            shutil.copytree(box.root / "aside", disk, symlinks=True)
        steps += 1
    assert steps > 3


@pytest.mark.parametrize("there", [[], ["tiny/r1/.gpufleet-complete"]], ids=["nothing", "no store"])
def test_a_folder_that_is_not_gpufleets_is_left_alone(box: RemovalBox, there: list[str]) -> None:
    box.kit()
    for path in there:
        box.put("data/" + path)
    asked = {"instance": None, "models": True, "packages": False, "home": str(box.root / "data")}
    assert removable.run(asked)["goes"] == []
    before = [path for path in box.tree() if path.startswith("data")]
    remove.run(asked)
    assert [path for path in box.tree() if path.startswith("data")] == before
