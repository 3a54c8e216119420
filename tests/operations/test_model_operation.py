"""Models in a run: got once for all boxes, brought in one go, put in place from what came."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest

from gpufleet.errors import BoxError
from gpufleet.models import Model
from gpufleet.settings import Settings
from gpufleet.wheelhouse.items import FetchError, Item
from gpufleet.wheelhouse.store import Store
from operations import model_put as operation
from operations import swarm
from operations.member import Damaged
from operations.model import in_place
from operations.model_spec import places, spec

WEIGHTS, CONFIG, HEAD = b"weights", b"{}", b"head"


def file(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def sha(data: bytes) -> str:
    return str(file(data)["sha256"])


def page(name: str = "tiny", **more: Any) -> Model:
    files = {"config.json": file(CONFIG), "sub/model.safetensors": file(WEIGHTS), "sub/copy.json": file(CONFIG)}
    source = {"http": f"http://192.0.2.1/{name}/", "files": files}
    whole = {"schema": 1, "name": name, "title": name, "revision": "r1", "source": source, "served_name": name}
    return Model.model_validate({**whole, **more})


class Box:
    def __init__(self, name: str, *models: Model, **settings: Any) -> None:
        self.said: list[str] = []
        self.noops: list[str] = []
        self.called: list[tuple[str, Mapping[str, Any]]] = []
        self.host = SimpleNamespace(name=name, log=self.said.append, noop=self.noops.append)
        instances = [SimpleNamespace(name=f"{each.name}-{index}", model=each) for each in models for index in (1, 2)]
        self.plan = SimpleNamespace(
            settings=Settings.model_validate(settings), instances=instances, models=list(models)
        )
        self.changes = SimpleNamespace(models=list(models), models_home="")

    def call(self, verb: str, wanted: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        self.called.append((verb, wanted))
        return {}


class Run:
    """A run: what was got from outside, and what the swarm was asked for."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Store(root)
        self.got: list[str] = []
        self.fails: Exception | None = None
        self.brought: list[tuple[str, list[Item], Any, Any, Any]] = []
        self.damaged: list[BoxError] = []
        self.mended: list[Item] = []
        self.boxes: dict[str, Box] = {}
        self.offered: list[tuple[str, list[str]]] = []
        monkeypatch.setattr(operation, "_ready", {})
        monkeypatch.setattr(operation, "_failed", {})
        monkeypatch.setattr(operation, "default_root", lambda: root)
        monkeypatch.setattr(operation.model_files, "ready", self.ready)
        monkeypatch.setattr(operation.model_files, "mend", self.mend)
        monkeypatch.setattr(operation.model_files, "pieces", lambda store, item: ["a piece"] * (item.size == 7) or None)
        monkeypatch.setattr(swarm, "bring", self.bring)
        monkeypatch.setattr(swarm, "offer", self.offer)
        monkeypatch.setattr(operation.looks, "of_this_run", lambda: self.boxes)
        monkeypatch.setattr(operation.looks, "active_hosts", lambda: [box.host for box in self.boxes.values()])

    def ready(self, model: Model, store: Store, settings: Settings, say: Any) -> list[Item]:
        self.got.append(model.name)
        gevent.sleep(0.01)
        if self.fails:
            raise self.fails
        found = operation.model_files.items(model, settings.mirrors)
        if settings.fetch.by == "controller":
            for item in found:
                path = store.path(item)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"x" * (item.size or 0))
        return found

    def mend(self, wanted: list[Item], *_: Any) -> list[Item]:
        self.mended += wanted
        return wanted

    def bring(self, box: Box, items: Sequence[Item], store: Store, *more: Any) -> None:
        assert more[0] == box.plan.settings.fetch.peers
        self.brought.append((box.host.name, list(items), *more[1:]))
        if self.damaged:
            raise self.damaged.pop()

    def offer(self, box: Box, items: Sequence[Item], more: Any) -> None:
        if box.host.name == "box-1":
            raise BoxError("box-1", "it is gone", "look")
        self.offered.append((box.host.name, sorted(item.filename for item in items)))

    def put(self, *boxes: Box) -> list[str]:
        """On all of them at once; what went wrong."""
        failed: list[str] = []

        def one(box: Box) -> None:
            try:
                operation.put_all(cast(Any, box), box.changes.models)
            except BoxError as error:
                failed.append(str(error))

        gevent.joinall([gevent.spawn(one, box) for box in boxes], raise_error=True)
        return failed


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def test_a_model_is_got_once_for_all_boxes_and_put_in_place_on_each(run: Run) -> None:
    boxes = [Box(f"box-{number}", page()) for number in range(3)]
    assert run.put(*boxes) == []
    assert run.got == ["tiny"]
    assert sum("waiting for what another box has fetched" in box.said for box in boxes) == 2
    for box in boxes:
        ((verb, told),) = box.called
        assert (verb, told["name"], told["directory"], told["head"]) == ("model", "tiny", "r1", None)
        assert told["instances"] == ["tiny-1", "tiny-2"]
        assert told["files"]["sub/model.safetensors"] == {**file(WEIGHTS), "filename": "sub__model.safetensors"}
        assert told["files"]["sub/copy.json"] == {**file(CONFIG), "filename": "config.json"}, "the same bytes"


def test_what_the_swarm_is_told(run: Run) -> None:
    run.put(Box("one", page(), page("other", revision="r2")))
    ((_, items, addresses, more, room),) = run.brought
    assert sorted(item.filename for item in items) == ["config.json", "sub__model.safetensors"], "each file once"
    assert addresses == {}, "the controller has them all"
    assert room == {"spare": 1 << 30, "what": "tiny and other"}
    assert more[sha(WEIGHTS)] == {
        "place": "models",
        "pieces": ["a piece"],
        "at": [
            "tiny/r1/sub/model.safetensors",
            "tiny/r1.incoming/sub/model.safetensors",
            "other/r2/sub/model.safetensors",
            "other/r2.incoming/sub/model.safetensors",
        ],
    }
    assert "pieces" not in more[sha(CONFIG)] and "tiny/r1/sub/copy.json" in more[sha(CONFIG)]["at"]


def test_a_line_that_fails_is_not_tried_for_every_box(run: Run) -> None:
    run.fails = FetchError("model.safetensors: the mirror stalls.\nTry another.")
    failed = run.put(Box("one", page()), Box("two", page()))
    assert run.got == ["tiny"] and len(failed) == 2
    assert failed[0].startswith("one: model.safetensors: the mirror stalls. Try another. Mend that on the controller")
    run.fails = OSError("the disk is gone")
    assert "the disk is gone" in run.put(Box("one", page("other")))[0]


def test_boxes_that_fetch_for_themselves_get_addresses(run: Run) -> None:
    run.put(Box("one", page(), fetch={"by": "boxes"}))
    ((_, _, addresses, more, _),) = run.brought
    assert addresses[sha(WEIGHTS)] == "http://192.0.2.1/tiny/sub/model.safetensors"
    assert more[sha(WEIGHTS)]["place"] == "models"


def test_a_damaged_file_of_the_controller_is_mended_once(run: Run) -> None:
    run.damaged = [Damaged("one", Path("/store") / sha(WEIGHTS) / "x")]
    assert run.put(box := Box("one", page())) == []
    assert [item.sha256 for item in run.mended] == [sha(WEIGHTS)] and len(run.brought) == 2
    assert any("on this controller is damaged: it is mended" in line for line in box.said)
    run.damaged = [Damaged("one", Path("/store") / sha(WEIGHTS) / "x") for _ in range(2)]
    assert "damaged" in run.put(Box("one", page()))[0]


def test_a_model_that_lies_on_the_box_is_only_linked(run: Run) -> None:
    box = Box("one", page(source={"path": "/srv/tiny"}))
    assert run.put(box) == [] and run.brought == []
    ((_, told),) = box.called
    assert (told["path"], told["files"], told["head"]) == ("/srv/tiny", {}, None)


def test_a_head_is_brought_with_the_model(run: Run) -> None:
    head = {"source": {"http": "http://192.0.2.1/head/", "files": {"mtp.safetensors": file(HEAD)}}}
    model = page(mtp_head={**head, "file": "mtp.safetensors"})
    box = Box("one", model)
    assert run.put(box) == []
    assert "mtp.safetensors" in [item.filename for item in run.brought[0][1]]
    ((_, told),) = box.called
    assert told["directory"] == model.directory != "r1"
    assert told["head"] == {"file": "mtp.safetensors", **file(HEAD), "filename": "mtp.safetensors"}
    assert "tiny/r1/config.json" in places(model)[sha(CONFIG)], "what is there without the head is used"


def test_a_head_that_lies_on_the_box(run: Run) -> None:
    model = page(mtp_head={"source": {"path": "/srv/heads"}, "file": "mtp.safetensors"})
    found = spec(cast(Any, Box("one", model).plan), model, operation.model_files.items(model, Settings().mirrors))
    assert found["head"] == {"file": "mtp.safetensors", "path": "/srv/heads/mtp.safetensors"}


def test_boxes_that_have_the_model_give_it_to_one_that_comes(run: Run) -> None:
    new, tiny = Box("new", page()), page()
    run.boxes = {"new": new, **{f"box-{number}": Box(f"box-{number}", tiny) for number in range(7)}}
    for name, box in run.boxes.items():
        box.changes.models = [tiny] if name in ("new", "box-5") else []
    run.boxes["alone"] = Box("alone", tiny, fetch={"peers": False})
    run.boxes["older"] = Box("older", page(revision="r0"))
    run.boxes["alone"].changes.models = run.boxes["older"].changes.models = []
    assert run.put(new) == []
    givers = [name for name, _ in run.offered]
    assert givers == ["box-0", "box-2", "box-3"], "four are asked, of which one fails"
    assert run.offered[0][1] == ["config.json", "sub__model.safetensors"]
    run.offered.clear()
    alone = Box("by-itself", page(), fetch={"peers": False})
    assert run.put(alone) == [] and run.offered == []


def test_nothing_to_do(run: Run) -> None:
    box = Box("one")
    assert list(in_place._inner(box=box)) == []  # type: ignore[attr-defined]
    assert box.noops == ["all models are in place"]
