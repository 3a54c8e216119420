"""A model's way from the hub to the boxes, all of it real but SSH: one copy, and only pieces of what is wrong."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import gevent
import pytest

import gpufleet.spread
from gpufleet import model_files
from gpufleet.errors import BoxError
from gpufleet.models import Model
from gpufleet.settings import Mirrors
from gpufleet.wheelhouse.store import Store
from hostkit import files
from hostkit.pieces import PIECE
from lab.hub import Hub, Repo
from operations import model_put as operation
from operations import swarm
from tests.operations.folder_boxes import FolderBox

SHARDS = [PIECE + 100_000, PIECE + 5]
REPO, COMMIT = "owner/tiny", "0123456789abcdef" * 2 + "01234567"


class Fleet:
    """The hub, the controller's store and three boxes; each `deploy` is a run of its own."""

    def __init__(self, root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hub, self.monkeypatch = hub, monkeypatch
        content = {f"model-{number}.safetensors": os.urandom(size) for number, size in enumerate(SHARDS)}
        self.content = content | {"config.json": b"{}", "sub/notes.txt": b"{}"}
        hub.repos[REPO] = Repo(self.content, COMMIT)
        sums = {name: {"size": len(data), "sha256": sha256(data)} for name, data in self.content.items()}
        self.total = sum(map(len, set(self.content.values())))
        source = {"hub": REPO, "commit": COMMIT, "files": sums}
        page = {"schema": 1, "name": "tiny", "title": "tiny", "revision": "r1", "source": source, "served_name": "tiny"}
        self.model = Model.model_validate(page)
        self.store = Store(root / "controller")
        self.boxes = [FolderBox(root / name, self.model, mirrors={"hub": hub.url}) for name in ("one", "two", "three")]
        monkeypatch.setattr(operation, "default_root", lambda: self.store.root)

    def stock(self) -> None:
        """The controller has it all from before."""
        for item in model_files.items(self.model, Mirrors()):
            data = next(data for data in self.content.values() if sha256(data) == item.sha256)
            self.store.write(item, io.BytesIO(data), "a test", in_pieces=True)

    def deploy(self, *boxes: FolderBox) -> list[str]:
        """On all of them at once; what went wrong."""
        chosen = boxes or tuple(self.boxes)
        found = swarm.Swarm()
        for module, name, value in (
            (operation, "_ready", {}),
            (operation, "_failed", {}),
            (swarm, "swarm", found),
            (operation, "having", lambda box, model: iter(each for each in chosen if each not in lacking)),
        ):
            self.monkeypatch.setattr(module, name, value)
        lacking = [box for box in chosen if not files.is_complete(str(box.directory(self.model)))]
        for box in chosen:
            box.received = 0
            box.said.clear()
        failed: list[str] = []

        def one(box: FolderBox) -> None:
            try:
                operation.put_all(cast(Any, box), [self.model])
            except BoxError as error:
                failed.append(str(error))

        gevent.joinall([gevent.spawn(one, box) for box in lacking], raise_error=True)
        return failed

    @property
    def outside(self) -> int:
        return sum(self.hub.counts["sent"].values())

    @property
    def sent(self) -> int:
        """By the controller, in the last deploy."""
        return sum(box.received for box in self.boxes)

    def whole(self, *boxes: FolderBox) -> None:
        for box in boxes or self.boxes:
            directory = box.directory(self.model)
            assert files.is_complete(str(directory)), box.said
            assert {name: (directory / name).read_bytes() for name in self.content} == self.content
            assert all((directory / name).stat().st_nlink >= 2 for name in self.content)
            assert not [path for path in box.store.rglob("*") if path.suffix in (".part", ".holes")]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def flip(path: Path, *places: int) -> None:
    with path.open("r+b") as handle:
        for place in places:
            handle.seek(place)
            byte = handle.read(1)[0]
            handle.seek(place)
            handle.write(bytes([byte ^ 1]))


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setattr(gpufleet.spread, "TINY", 0)  # the small files of these tests stand for large ones
    with Hub() as hub:
        found = Fleet(tmp_path, hub, monkeypatch)
        yield found
        for box in found.boxes:
            box.end()


def test_one_copy_comes_from_outside_and_one_leaves_the_controller(fleet: Fleet) -> None:
    one, two, _ = fleet.boxes
    assert fleet.deploy(one, two) == []
    assert (fleet.outside, fleet.sent) == (fleet.total, fleet.total)
    fleet.whole(one, two)
    assert fleet.deploy() == []
    assert (fleet.outside, fleet.sent) == (fleet.total, 0), "the third has it from the others"
    fleet.whole()
    assert fleet.deploy() == [] and not any(box.said for box in fleet.boxes)


def test_what_is_damaged_costs_its_pieces_wherever_that_is(fleet: Fleet) -> None:
    _, two, _ = fleet.boxes
    fleet.stock()
    fleet.deploy()
    # on a box, in the model's folder: another box gives the piece
    name = "model-1.safetensors"
    flip(two.directory(fleet.model) / name, 1)
    (two.directory(fleet.model) / files.COMPLETE).unlink()
    assert fleet.deploy() == [] and (fleet.outside, fleet.sent) == (0, 0)
    assert "1 file to come, 16.0 MiB" in two.said
    assert any("16.0 MiB from other boxes" in line for line in two.said), two.said
    fleet.whole()
    # on the controller: it gets the piece from outside, and a box only what it lacks
    for box in fleet.boxes:
        (box.directory(fleet.model) / files.COMPLETE).unlink()
        flip(box.directory(fleet.model) / name, 5)
    (stored,) = fleet.store.root.glob(f"*/*/{name}")
    flip(stored, 6)
    assert fleet.deploy() == [], [box.said for box in fleet.boxes]
    assert fleet.outside == PIECE
    assert PIECE < fleet.sent <= 4 * PIECE, "sent damaged, and once more"
    fleet.whole()


def test_a_giver_that_turns_out_damaged_is_left_and_mended_by_the_next_deploy(fleet: Fleet) -> None:
    one, two, _ = fleet.boxes
    fleet.stock()
    fleet.deploy(one)
    flip(one.directory(fleet.model) / "model-0.safetensors", 7)
    assert fleet.deploy(one, two) == []
    fleet.whole(two)
    assert fleet.sent <= 2 * PIECE, "the rest is good"
    assert not files.is_complete(str(one.directory(fleet.model)))
    assert fleet.deploy() == []
    fleet.whole()


def test_a_folder_of_an_older_version_is_used_for_what_is_good_in_it(fleet: Fleet) -> None:
    one, *_ = fleet.boxes
    fleet.stock()
    directory = one.directory(fleet.model)
    for name, data in fleet.content.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    (directory / "sub/notes.txt").unlink()
    flip(directory / "model-0.safetensors", 9)
    assert fleet.deploy(one) == [] and fleet.sent == PIECE
    fleet.whole(one)


def test_a_run_that_is_cut_off_goes_on(fleet: Fleet) -> None:
    one, two, _ = fleet.boxes
    fleet.stock()

    def strike(verb: str) -> None:
        if verb == "model":
            raise BoxError("two", "the connection broke", "deploy again")

    two.strike = strike
    assert any("the connection broke" in line for line in fleet.deploy(one, two))
    two.strike = lambda verb: None
    assert fleet.deploy() == []
    fleet.whole()
