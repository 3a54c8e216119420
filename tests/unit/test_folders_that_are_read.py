"""The folders of an owner: one that cannot be read, or a file that nobody reads, is said, with 2 and a remedy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpufleet.cli import main
from gpufleet.errors import ConfigError
from gpufleet.inventory import load
from tests.unit.fleets import owner

BOXES = [("turing-1", {"ssh_hostname": "192.168.1.11"})]
INVENTORY = f"from gpufleet.inventory import by_traits\nglobals().update(by_traits({BOXES!r}))\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    owner(tmp_path, inventory__home=INVENTORY, group_data__all="")
    for kind in ("models", "stacks"):
        (tmp_path / "files" / kind).mkdir(parents=True)
    return tmp_path


def problems(folder: Path) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(BOXES, folder / "inventory" / "home.py")
    return error.value.problems


@pytest.mark.parametrize("name", ["group_data", "files/models", "files/stacks"])
def test_one_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    closed, scandir = folder / name, os.scandir

    def refuse(path: Any = ".") -> Any:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(main, ["plan", "inventory/home.py"])
    assert done.exit_code == 2, done.output
    assert f"{closed} cannot be read: permission denied; " in done.output and "chmod -R a+rX" in done.output


def test_a_file_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("group_data/all.py", "files/models/own.yaml"):
        (folder / name).write_text("")
    read = Path.read_text

    def refuse(path: Path, *given: Any, **named: Any) -> str:
        if path.is_relative_to(folder) and path.name != "home.py":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", refuse)
        with pytest.raises(ConfigError, match=r"own\.yaml cannot be read: permission denied; "):
            load(BOXES, folder / "inventory" / "home.py")
        (folder / "files/models/own.yaml").unlink()
        with pytest.raises(ConfigError, match=r"all\.py cannot be read: permission denied; "):
            load(BOXES, folder / "inventory" / "home.py")


@pytest.mark.parametrize("name", ["group_data", "files/models", "files/stacks"])
def test_a_file_in_the_place_of_a_folder(folder: Path, name: str) -> None:
    for path in (folder / name).iterdir():
        path.unlink()
    (folder / name).rmdir()
    (folder / name).write_text("")
    assert problems(folder) == [f"{folder / name} is a file: it must be a folder; rename the file"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("group_data/all.yaml", "settings of all are Python, in all.py; write them there"),
        ("group_data/sm75.yml", "in sm75.py; write them there"),
        ("group_data/sm57.txt", "did you mean 'sm75.py'?"),
        ("group_data/ssh.txt", "settings go into NAME.py, after a trait or a group; move it away"),
        ("group_data/all.PY", "in all.py; write them there"),
        ("files/models/x.yml", "rename it to x.yaml"),
        ("files/models/x.json", "a page is called x.yaml; move it away"),
        ("files/stacks/x.YAML", "rename it to x.yaml"),
    ],
)
def test_a_file_that_nobody_reads(folder: Path, name: str, says: str) -> None:
    (folder / name).write_text("")
    (problem,) = problems(folder)
    assert problem.startswith(f"{name.removeprefix('files/')}: nobody reads a file of this name: ")
    assert problem.endswith(says)


@pytest.mark.parametrize("name", ["README.md", "README", ".hidden", "all.py~", "#all.py#", "x.yaml.bak", "x.orig"])
def test_what_editors_and_people_leave(folder: Path, name: str) -> None:
    for place in ("group_data", "files/models", "files/stacks"):
        (folder / place / name).write_text("")
        (folder / place / "__pycache__").mkdir()
    assert load(BOXES, folder / "inventory" / "home.py").boxes
