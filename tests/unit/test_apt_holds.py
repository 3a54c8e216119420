"""What stays as it was put: our holds and only ours, the list of unattended-upgrades, `/usr/local/cuda`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hostkit import apt, apt_call, blacklist, cuda_link, holds, packages, shell
from hostkit.errors import Failure
from hostkit.roots import Roots


class Dpkg:
    """dpkg's status file, changed by apt-mark as it would be."""

    def __init__(self, status: Path) -> None:
        self.status = status
        self.states: dict[str, str] = {}
        self.fails = ""
        self.write()

    def write(self) -> None:
        text = "Package: {}\nStatus: {} ok installed\nArchitecture: all\nVersion: 1\n"
        self.status.write_text("\n".join(text.format(*item) for item in self.states.items()))

    def set(self, **states: str) -> None:
        self.states.update(states)
        self.write()

    def __call__(self, arguments: list[str]) -> str:
        assert arguments[0] == "apt-mark"
        if arguments[1] == self.fails:
            raise Failure("the power went", "")
        self.set(**dict.fromkeys(arguments[2:], {"hold": "hold", "unhold": "install"}[arguments[1]]))
        return ""

    @property
    def held(self) -> set[str]:
        return {name for name, state in self.states.items() if state == "hold"}


@pytest.fixture
def dpkg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dpkg:
    monkeypatch.setattr(packages, "STATUS", str(tmp_path / "status"))
    monkeypatch.setattr(holds, "RECORD", str(tmp_path / "packages.json"))
    box = Dpkg(tmp_path / "status")
    monkeypatch.setattr(apt_call, "apt", box)
    return box


def record() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(Path(holds.RECORD).read_text())
    return {key: found[key] for key in ("installed", "held")}


def test_what_is_ours_is_held_and_released_and_an_owners_hold_never_touched(dpkg: Dpkg) -> None:
    dpkg.set(ours="install", mine="hold", both="hold", other="install")
    holds.note(["ours", "both", "never-came"])
    holds.hold()
    assert dpkg.held == {"ours", "both", "mine"}
    assert record() == {"installed": ["both", "ours"], "held": ["ours"]}
    assert holds.read(Roots()) == {"installed": ["both", "ours"], "held": ["ours"]}
    holds.release()
    assert dpkg.held == {"both", "mine"} and record()["held"] == []


def test_our_holds_are_off_while_we_install_and_back_after_also_when_that_fails(dpkg: Dpkg) -> None:
    dpkg.set(ours="install", mine="hold")
    holds.note(["ours"])
    holds.hold()
    with pytest.raises(ZeroDivisionError), holds.released():
        assert dpkg.held == {"mine"}
        raise ZeroDivisionError
    assert dpkg.held == {"ours", "mine"}


def test_a_power_cut_leaves_a_missing_hold_and_never_an_unknown_one(dpkg: Dpkg) -> None:
    dpkg.set(ours="install")
    holds.note(["ours"])
    dpkg.fails = "hold"
    with pytest.raises(Failure):
        holds.hold()
    assert dpkg.held == set() and holds.read(Roots()) == {"installed": ["ours"], "held": []}
    dpkg.fails = "unhold"
    holds.hold()
    with pytest.raises(Failure):
        holds.release()
    assert dpkg.held == {"ours"} and record()["held"] == ["ours"]


def test_a_package_that_came_back_by_its_owner_is_not_ours(dpkg: Dpkg) -> None:
    dpkg.set(ours="install")
    holds.note(["ours"])
    holds.hold()
    del dpkg.states["ours"]
    dpkg.write()
    assert holds.read(Roots()) == {"installed": [], "held": []}
    holds.hold()
    dpkg.set(ours="hold")
    holds.release()
    assert dpkg.held == {"ours"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"installed": 3, "held": []}'])
def test_a_damaged_record_is_none(dpkg: Dpkg, text: str) -> None:
    Path(holds.RECORD).write_text(text)
    assert holds.read(Roots()) == {"installed": [], "held": []}
    holds.hold()


def test_the_list_of_unattended_upgrades_is_written_once_put_right_and_removed(
    dpkg: Dpkg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "51gpufleet"
    monkeypatch.setattr(blacklist, "PATH", str(path))
    assert blacklist.state(Roots()) == "missing"
    apt.run({"packages": [], "keep_off": True, "hold": True})
    assert blacklist.state(Roots()) == "current"
    before = path.stat().st_ino
    apt.run({"packages": [], "keep_off": True})
    assert path.stat().st_ino == before
    path.write_text(path.read_text().replace("nvidia", "nvida"))
    assert blacklist.state(Roots()) == "changed"
    apt.run({"packages": [], "keep_off": None})
    assert blacklist.state(Roots()) == "changed"
    apt.run({"packages": [], "keep_off": True})
    assert blacklist.state(Roots()) == "current"
    apt.run({"packages": [], "keep_off": False})
    assert not path.exists()
    apt.run({"packages": [], "keep_off": False})


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LOCAL", "ALTERNATIVES", "STATES"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setattr(cuda_link, name, str(folder))
    for version in ("12.8", "13.0"):
        (tmp_path / "LOCAL" / f"cuda-{version}").mkdir()
    return tmp_path


@pytest.mark.parametrize(("mode", "called"), [("auto", 1), ("manual", 0)])
def test_the_link_is_fixed_before_anything_is_installed(
    links: Path, monkeypatch: pytest.MonkeyPatch, mode: str, called: int
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(shell, "run", ran.append)
    (links / "LOCAL/cuda").symlink_to(links / "ALTERNATIVES/cuda")
    (links / "ALTERNATIVES/cuda").symlink_to(links / "LOCAL/cuda-12.8")
    (links / "STATES/cuda").write_text(f"{mode}\n/usr/local/cuda\n")
    with cuda_link.kept():
        assert ran == [["update-alternatives", "--set", "cuda", str(links / "LOCAL/cuda-12.8")]] * called
    assert len(ran) == called


def test_a_link_made_by_hand_is_put_back_and_a_new_one_may_come(links: Path) -> None:
    own, new = links / "LOCAL/cuda", links / "LOCAL/cuda-13"
    own.symlink_to("cuda-12.8")
    with cuda_link.kept():
        own.unlink()
        own.symlink_to("cuda-13.0")
        new.symlink_to("cuda-13.0")
    assert str(own.readlink()) == "cuda-12.8" and str(new.readlink()) == "cuda-13.0"


def test_what_is_not_of_the_toolkit_is_written_down_and_never_held(dpkg: Dpkg) -> None:
    dpkg.set(**{"ours": "install", "g++": "install", "other": "install"})
    holds.note(["ours"], ["g++", "never-came"])
    holds.hold()
    assert dpkg.held == {"ours"} and holds.all_installed() == ["g++", "ours"]
    assert holds.read(Roots()) == {"installed": ["ours"], "held": ["ours"]}
    holds.note(["more"])
    assert json.loads(Path(holds.RECORD).read_text())["added"] == ["g++"]


def test_a_record_of_before_others_were_written_down_is_read(dpkg: Dpkg) -> None:
    dpkg.set(ours="hold")
    Path(holds.RECORD).write_text(json.dumps({"schema": 1, "installed": ["ours"], "held": ["ours"]}))
    assert holds.read(Roots()) == {"installed": ["ours"], "held": ["ours"]}
    assert holds.all_installed() == ["ours"]
