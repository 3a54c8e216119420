"""`host.models` on the box: what the look tells of the folder, how /opt/gpufleet/models becomes a link to it, gc."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hostkit import disks, files, garbage, model, models_home, places, state, store, sweep
from hostkit.errors import Failure
from hostkit.roots import Roots
from tests.unit.boxes import FakeBox, Told, put

MOUNTS = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:5 / /mnt/big rw - xfs /dev/sdb1 rw\n"
FSTAB = (
    "# /dev/sdx /mnt ext4\nUUID=1 / ext4 defaults 0 1\n/dev/sdb1 /mnt/big/ xfs nofail 0 2\n"
    "UUID=3 /mnt/other\\040disk ext4 nofail 0 2\n/swapfile none swap sw 0 0\nbroken\n"
)


# The look


@pytest.fixture
def looked(tmp_path: Path) -> Path:
    """A box made of a few files."""
    tmp_path.chmod(0o755)
    put(tmp_path, "/proc/self/mountinfo", MOUNTS)
    put(tmp_path, "/etc/fstab", FSTAB)
    return tmp_path


def look(box: Path, *wanted: str) -> dict[str, Any]:
    return disks.read(Roots(str(box)), Told([]), wanted)


def test_a_folder_that_may_hold_models(looked: Path) -> None:
    (looked / "mnt/big/models").mkdir(parents=True)
    found = look(looked, "/mnt/big/models")
    assert found["places"] == {
        "/mnt/big/models": {
            "exists": True, "real": "/mnt/big/models", "unmounted": None, "closed": None, "foreign": None,
        }
    }  # fmt: skip
    assert found["disks"]["/mnt/big/models"]["filesystem"] == "xfs"
    assert found["disks"]["/mnt/big/models"]["mount"] == "/mnt/big"


def test_one_that_is_not_there_has_no_disk(looked: Path) -> None:
    found = look(looked, "/mnt/big/models")
    assert not found["places"]["/mnt/big/models"]["exists"]
    assert "/mnt/big/models" not in found["disks"]


@pytest.mark.parametrize(
    ("path", "point"),
    [
        ("/mnt/other disk/models", "/mnt/other disk"),
        ("/mnt/other disk", "/mnt/other disk"),
        ("/mnt/big/models", None),
        ("/mnt/bigger", None),
        ("/srv/models", None),
    ],
)
def test_a_disk_of_fstab_that_is_not_mounted(looked: Path, path: str, point: str | None) -> None:
    (looked / path[1:]).mkdir(parents=True)
    assert look(looked, path)["places"][path]["unmounted"] == point


def test_a_folder_that_services_may_not_enter(looked: Path) -> None:
    (looked / "mnt/big/models").mkdir(parents=True)
    (looked / "mnt/big").chmod(0o750)
    assert look(looked, "/mnt/big/models")["places"]["/mnt/big/models"]["closed"] == "/mnt/big"


def test_what_is_not_ours_is_told_but_for_what_file_systems_make(looked: Path) -> None:
    put(looked, "/mnt/big/lost+found/x", "")
    assert look(looked, "/mnt/big")["places"]["/mnt/big"]["foreign"] is None
    put(looked, "/mnt/big/photos/1.jpg", "")
    assert look(looked, "/mnt/big")["places"]["/mnt/big"]["foreign"] == "photos"
    (looked / "mnt/big/.store").mkdir()
    assert look(looked, "/mnt/big")["places"]["/mnt/big"]["foreign"] is None


def test_what_lies_there_of_a_box_before_counts_as_come(looked: Path) -> None:
    put(looked, "/mnt/big/.store/" + "a" * 64 + "/x", "x" * (3 << 20))
    (looked / "mnt/big/m").mkdir()
    os.link(looked / f"mnt/big/.store/{'a' * 64}/x", looked / "mnt/big/m/x")
    assert look(looked, "/mnt/big")["disks"]["/mnt/big"]["coming_mib"] == 3


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ([], {"link": None, "empty": True, "ours": False}),
        (["opt/gpufleet/models/.store/"], {"link": None, "empty": True, "ours": False}),
        (["opt/gpufleet/models/.store/a/x"], {"link": None, "empty": False, "ours": False}),
    ],
)
def test_where_models_lie_now(looked: Path, made: list[str], told: dict[str, Any]) -> None:
    for name in made:
        if name.endswith("/"):
            (looked / name).mkdir(parents=True)
        else:
            put(looked, name, "x")
    assert look(looked)["models_home"] == told


def test_a_link_is_told_with_whose_it_is(looked: Path) -> None:
    (looked / "opt/gpufleet").mkdir(parents=True)
    (looked / "opt/gpufleet/models").symlink_to("../../mnt/big")
    assert look(looked)["models_home"] == {"link": "../../mnt/big", "empty": False, "ours": False}, "it leads nowhere"
    (looked / "mnt/big").mkdir(parents=True)
    put(looked, "/var/lib/gpufleet/models-home.json", json.dumps({"path": "../../mnt/big"}))
    assert look(looked)["models_home"] == {"link": "../../mnt/big", "empty": True, "ours": True}
    for wrong in ("", "[]", '{"path": 1}', "{"):
        put(looked, "/var/lib/gpufleet/models-home.json", wrong)
        assert not look(looked)["models_home"]["ours"]


# The verb


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBox:
    monkeypatch.setattr(places, "closed", lambda roots, path: None)  # below the tests' own folder, which is
    monkeypatch.setattr(places, "fstab", lambda roots: [])
    found = FakeBox(tmp_path, monkeypatch)
    (tmp_path / "big").mkdir()
    return found


def home(box: FakeBox) -> dict[str, Any]:
    return models_home.run({"path": str(box.root / "big")})


@pytest.mark.parametrize("before", ["", "models", "models/.store"])
def test_absent_or_empty_it_becomes_a_link_and_stays_one(box: FakeBox, before: str) -> None:
    (box.root / before).mkdir(parents=True, exist_ok=True)
    (box.root / "big/lost+found").mkdir()
    for _ in range(2):
        assert home(box) == {"path": str(box.root / "big")}
        assert os.readlink(box.root / "models") == str(box.root / "big")
        assert models_home.is_linked() and models_home.root() == str(box.root / "big")
    assert sorted(os.listdir(box.root / "big")) == [".store", "lost+found"], "nothing of the trials is left"
    events = [json.loads(line) for line in Path(state.JOURNAL).read_text().splitlines()]
    assert [(event["event"], event["path"]) for event in events] == [("models-home", str(box.root / "big"))]


def test_what_is_not_empty_stays_as_it_is(box: FakeBox) -> None:
    put(box.root, "models/tiny/r1/config.json", "{}")
    with pytest.raises(Failure, match="is not empty, and nothing is moved"):
        home(box)
    assert (box.root / "models/tiny/r1/config.json").exists() and not (box.root / "models").is_symlink()
    assert not models_home.is_linked() and models_home.root() == str(box.root / "models")


def test_a_model_that_is_only_linked_counts_as_something(box: FakeBox) -> None:
    (box.root / "models/tiny").mkdir(parents=True)
    (box.root / "models/tiny/local").symlink_to(box.root)
    with pytest.raises(Failure, match="not empty"):
        home(box)


def test_a_link_to_elsewhere_is_replaced_when_nothing_lies_there(box: FakeBox) -> None:
    (box.root / "old").mkdir()
    (box.root / "models").symlink_to(box.root / "old")
    home(box)
    assert os.readlink(box.root / "models") == str(box.root / "big")


@pytest.mark.parametrize("leads", ["somewhere", "nowhere"])
def test_a_link_to_elsewhere_stays_when_models_lie_or_may_lie_there(box: FakeBox, leads: str) -> None:
    put(box.root, "somewhere/tiny/r1/config.json", "{}")
    (box.root / "models").symlink_to(box.root / leads)
    with pytest.raises(Failure, match=rf"a link to .*{leads}\) is not empty"):
        home(box)
    assert os.readlink(box.root / "models") == str(box.root / leads)


def test_a_link_made_by_hand_is_taken_over_with_what_lies_there(box: FakeBox) -> None:
    put(box.root, "big/tiny/r1/config.json", "{}")
    (box.root / "models").symlink_to(box.root / "big")
    assert not models_home.is_linked()
    home(box)
    assert models_home.is_linked() and (box.root / "models/tiny/r1/config.json").exists()


def test_a_folder_with_others_files_is_refused_and_left(box: FakeBox) -> None:
    put(box.root, "big/photos/1.jpg", "")
    with pytest.raises(Failure, match=r"holds what is not gpufleet's \(photos\)"):
        home(box)
    assert os.listdir(box.root / "big") == ["photos"] and not (box.root / "models").is_symlink()


def test_a_folder_that_is_not_there_or_not_mounted_is_not_made(box: FakeBox, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match="there is no folder"):
        models_home.run({"path": str(box.root / "gone/models")})
    assert not (box.root / "gone").exists()
    monkeypatch.setattr(places, "fstab", lambda roots: [str(box.root)])
    with pytest.raises(Failure, match=r"is in /etc/fstab and not mounted"):
        home(box)
    assert os.listdir(box.root / "big") == []


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.EPERM, "gives a file no second name"), (errno.EROFS, "cannot be written to: Read-only")],
)
def test_a_file_system_that_will_not_do(box: FakeBox, monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    def link(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(Failure, match=said):
        home(box)
    assert os.listdir(box.root / "big") == [] and not (box.root / "models").is_symlink()


def test_cut_off_before_the_link_it_is_gone_on_with(box: FakeBox, monkeypatch: pytest.MonkeyPatch) -> None:
    (box.root / "models/.store").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(files, "link", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            home(box)
    assert not models_home.is_linked()
    home(box)
    assert models_home.is_linked()


def test_the_way_that_the_rule_tells_moves_models_with_their_second_names(box: FakeBox) -> None:
    put(box.root, "models/.store/a/weights", "x" * 5000)
    (box.root / "models/tiny").mkdir()
    os.link(box.root / "models/.store/a/weights", box.root / "models/tiny/weights")
    old, new = box.root / "models", box.root / "big"
    command = f"cp -a {old}/. {new}/ && mv {old} {old}.old && ln -sfn {new} {old}"
    subprocess.run(command, shell=True, check=True)
    home(box)
    assert models_home.is_linked()
    assert os.path.samefile(new / ".store/a/weights", new / "tiny/weights")
    shutil.rmtree(f"{old}.old")
    assert (old / "tiny/weights").read_text() == "x" * 5000


# Garbage


def model_of(box: FakeBox, where: str, *, marked: bool = True) -> Path:
    directory = box.root / where
    directory.mkdir(parents=True)
    (directory / "weights").write_bytes(b"x" * 5000)
    if marked:
        (directory / files.COMPLETE).write_text("{}")
    for path in (directory / "weights", *directory.glob(files.COMPLETE), directory):
        os.utime(path, (0, 0))
    return directory


def found(box: FakeBox) -> list[str]:
    return sorted(item["path"] for item in garbage.run({})["items"] if item["kind"] == "model")


def test_gc_frees_models_of_the_folder_but_nothing_that_others_put_there(
    box: FakeBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in ((files, "ROOT", ""), (store, "ROOT", "store"), (garbage, "CACHE", "cache")):
        monkeypatch.setattr(module, name, str(box.root / value))
    home(box)
    unused, half = model_of(box, "big/tiny/r1"), model_of(box, "big/tiny/r2.incoming", marked=False)
    model_of(box, "big/photos/2024", marked=False)
    assert found(box) == [str(unused), str(half)]
    swept = sweep.run({"paths": [*found(box), str(box.root / "big/photos/2024")], "models": True})
    assert sorted(swept["removed"]) == [str(unused), str(half)]
    assert (box.root / "big/photos/2024/weights").exists() and not unused.exists()
    assert garbage.run({})["kept"]["model"] >= 5000, "what stays is counted where it lies"
    # a link of the owner's own is followed by nobody
    model_of(box, "big/tiny/r3")
    Path(places.record()).unlink()
    assert found(box) == []
    assert str(box.root / "models") == model.MODELS
