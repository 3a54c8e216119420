"""`gpufleet gc`: what is shown, when it asks, and what it then frees; the boxes are stood in for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpufleet import garbage
from gpufleet.cli import main
from gpufleet.errors import BoxError
from tests.command import in_a_terminal, owners_folder

INVENTORY = """\
from gpufleet.inventory import by_traits
boxes = [(name, {"ssh_hostname": f"192.0.2.{len(name)}", "serve": []}) for name in ("one", "second")]
globals().update(by_traits(boxes))
"""
GIB = 1 << 30


def item(kind: str, name: str, size: int, why: str = "no release names it") -> dict[str, Any]:
    return {"kind": kind, "name": name, "path": f"/opt/gpufleet/{name}", "bytes": size, "why": why}


ITEMS = [
    item("runtime", "runtimes/engine-0", 5 * GIB),
    item("model", "models/old/r1", 20 * GIB),
    *(item("store", f"wheel-{number}.whl", GIB, "no runtime in use was made of it") for number in range(4)),
]


class Boxes:
    """Two boxes, of which `second` has nothing; `failures` as a test sets them."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        self.items = items
        self.failures: dict[str, BoxError] = {}
        self.hosts: dict[str, None] = {}
        self.swept: dict[str, Any] = {}

    def __call__(self, fleet: Any, names: list[str]) -> Boxes:
        self.hosts = dict.fromkeys(name for name in names if name not in self.failures)
        return self

    def call(self, verb: str, specs: Mapping[str, Any]) -> dict[str, Any]:
        if verb == "garbage":
            kept = {"runtime": 3 * GIB, "model": 0, "store": GIB}
            found = {name: self.items if name == "one" else [] for name in specs}
            return {name: {"items": items, "kept": kept, "young": ["/x"], "free": GIB} for name, items in found.items()}
        self.swept = dict(specs)
        return {name: {"removed": spec["paths"], "bytes": 9 * GIB, "free": 10 * GIB} for name, spec in specs.items()}


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> Boxes:
    found = Boxes(ITEMS)
    monkeypatch.setitem(sys.modules, "operations.errands", SimpleNamespace(Boxes=found))  # type: ignore[arg-type]
    return found


def gc(folder: Path, *options: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.chdir(owners_folder(folder, INVENTORY))
    return CliRunner().invoke(main, ["gc", "inventory/home.py", *options])


def test_without_a_terminal_it_only_shows(tmp_path: Path, boxes: Boxes, monkeypatch: pytest.MonkeyPatch) -> None:
    done = gc(tmp_path, monkeypatch=monkeypatch)
    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    assert "model models/old/r1 20.0 GiB no release names it; stays without --models" in lines
    assert "store 4 files of the store 4.0 GiB no runtime in use was made of it" in lines
    assert (
        "one: 9.0 GiB can go, 1.0 GiB are free; in use: runtimes 3.0 GiB, store 1.0 GiB; "
        "1 things younger than an hour are left"
    ) in lines
    assert any(line.startswith("second: 0 B can go") for line in lines)
    assert "nothing was freed: there is no terminal to ask in; add --yes" in done.output
    assert boxes.swept == {}


def test_with_yes_it_frees_what_it_showed(tmp_path: Path, boxes: Boxes, monkeypatch: pytest.MonkeyPatch) -> None:
    done = gc(tmp_path, "--yes", monkeypatch=monkeypatch)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "one: freed 9.0 GiB; 10.0 GiB are free"
    assert list(boxes.swept) == ["one"] and not boxes.swept["one"]["models"]
    assert "/opt/gpufleet/models/old/r1" not in boxes.swept["one"]["paths"]
    assert len(boxes.swept["one"]["paths"]) == 5


def test_models_go_when_asked_for(tmp_path: Path, boxes: Boxes, monkeypatch: pytest.MonkeyPatch) -> None:
    done = gc(tmp_path, "--yes", "--models", monkeypatch=monkeypatch)
    assert "stays without" not in done.output
    assert boxes.swept["one"] == {"paths": [each["path"] for each in ITEMS], "models": True}


@pytest.mark.parametrize(("answer", "freed"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_in_a_terminal_it_asks(
    tmp_path: Path, boxes: Boxes, monkeypatch: pytest.MonkeyPatch, answer: str, freed: bool
) -> None:
    monkeypatch.chdir(owners_folder(tmp_path, INVENTORY))
    code, said = in_a_terminal(monkeypatch, answer, "gc", "inventory/home.py")
    assert code == 0 and "Free 9.0 GiB on one? [y/N]" in said
    assert bool(boxes.swept) is freed


def test_a_box_that_fails_is_told_and_the_others_are_done(
    tmp_path: Path, boxes: Boxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes.failures = {"second": BoxError("second", "it is off", "turn it on")}
    done = gc(tmp_path, "--yes", monkeypatch=monkeypatch)
    assert done.exit_code == 1 and "second: it is off. Turn it on." in done.output
    assert list(boxes.swept) == ["one"]


def test_a_box_that_is_not_there_is_the_calls_fault(
    tmp_path: Path, boxes: Boxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = gc(tmp_path, "--limit", "three", monkeypatch=monkeypatch)
    assert done.exit_code == 2 and "--limit 'three' names no box" in done.output


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (1023, "1023 B"), (5 << 20, "5 MiB"), (3 << 29, "1.5 GiB"), (5 << 40, "5120.0 GiB")]
)
def test_sizes_for_people(size: int, words: str) -> None:
    assert garbage.human(size) == words
