"""The path of an inventory that is none, and one that raises: said with the file, the line and the right path."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gpufleet.cli import main
from tests.unit.fleets import owner

GOOD = (
    'from gpufleet.inventory import by_traits\n\nglobals().update(by_traits([("a", {"ssh_hostname": "192.0.2.1"})]))\n'
)


def plan(path: str) -> str:
    done = CliRunner().invoke(main, ["plan", path])
    assert done.exit_code == 2, done.output
    return done.output.strip()


@pytest.fixture(autouse=True)
def above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    owner(tmp_path / "fleet", inventory__home=GOOD, deploy="raise TypeError('no state')\n", empty="")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["fleet/empty.py", "fleet/deploy.py"])
def test_a_file_that_is_no_inventory(name: str) -> None:
    right = f"give {Path('fleet/inventory/home.py').resolve()}"
    assert plan(name) == f"gpufleet: {name} is no inventory: it does not call gpufleet.inventory.by_traits; {right}"


@pytest.mark.parametrize("name", ["fleet", "fleet/inventory", "./fleet/"])
def test_a_folder(name: str) -> None:
    assert plan(name).endswith(" is a folder: give the inventory in it, fleet/inventory/home.py")


def test_a_folder_of_others(above: Path) -> None:
    (above / "other").mkdir()
    assert plan("other") == "gpufleet: other is a folder: give the path of an inventory"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("boxes = [adress]", "inventory/own.py: line 2: NameError: name 'adress' is not defined"),
        ("1 / 0", "inventory/own.py: line 2: ZeroDivisionError: division by zero"),
        ("import of_nobody", "inventory/own.py: line 2: ModuleNotFoundError: No module named 'of_nobody'"),
        ("def f():\n    int('x')\nf()", "inventory/own.py: line 3: ValueError"),
        ("by_traits(5)", "own.py: line 2: by_traits takes a list of boxes"),
        ("by_traits('turing-1')", "own.py: line 2: by_traits takes a list of boxes"),
        ("by_traits(None)", "own.py: line 2: by_traits takes a list of boxes"),
        ("by_traits({'a': {}})", "own.py: line 2: by_traits takes a list of boxes"),
    ],
)
def test_an_inventory_that_raises(above: Path, text: str, says: str) -> None:
    owner(above / "fleet", inventory__own=f"from gpufleet.inventory import by_traits\n{text}\n")
    assert f"gpufleet: {says}" in plan("fleet/inventory/own.py")
