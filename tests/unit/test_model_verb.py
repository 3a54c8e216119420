"""A model on a box: made of links to the store's files, complete or absent; the owner's own is linked."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from hostkit import files, model, releases, state, stock, store
from hostkit.errors import Failure
from hostkit.roots import Roots
from tests.unit.boxes import FakeBox

CONTENT = {"config.json": b"{}", "model-00001.safetensors": b"weights" * 1000, "sub/merges.txt": b"a b\n"}


class Box(FakeBox):
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        self.directory = root / "models/tiny/r1"

    def store(self, name: str, data: bytes) -> dict[str, Any]:
        """What the verb is told of a file that is in the store."""
        known = {"filename": name.replace("/", "__"), "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        path = Path(store.at({**known, "place": store.MODELS}))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return known

    def spec(self, **more: Any) -> dict[str, Any]:
        wanted = {name: self.store(name, data) for name, data in CONTENT.items()}
        return {"name": "tiny", "directory": "r1", "instances": [], "path": None, "files": wanted, "head": None, **more}

    def around(self) -> list[str]:
        return sorted(os.listdir(self.directory.parent))


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    monkeypatch.setattr(os, "sync", lambda: None)
    return Box(tmp_path, monkeypatch)


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_it_is_made_of_links_and_marked(box: Box) -> None:
    spec = box.spec()
    assert model.run(spec) == {"path": str(box.directory)}
    for name, data in CONTENT.items():
        assert (box.directory / name).read_bytes() == data and (box.directory / name).stat().st_nlink == 2
    assert files.mark(str(box.directory)) == {"name": "tiny", "directory": "r1", "files": spec["files"]}
    assert box.around() == ["r1"]
    before = inode(box.directory)
    assert model.run(spec) == {"path": str(box.directory)} and inode(box.directory) == before


def test_without_one_of_its_files_it_is_absent(box: Box) -> None:
    spec = box.spec()
    lost = spec["files"]["sub/merges.txt"]
    os.unlink(store.at({**lost, "place": store.MODELS}))
    with pytest.raises(Failure, match=r"sub__merges\.txt is not in the store of this box\. deploy again"):
        model.run(spec)
    assert not box.directory.exists()
    box.store("sub/merges.txt", CONTENT["sub/merges.txt"])
    model.run(spec)
    assert box.around() == ["r1"]


def test_an_instance_is_doubted_before_its_model_changes(box: Box) -> None:
    state.update("tiny", gated="a" * 16)
    with pytest.raises(Failure):
        model.run(box.spec(instances=["tiny"], files={"x": {"filename": "x", "size": 1, "sha256": "0" * 64}}))
    assert state.instance("tiny")["stale"]


def test_a_doubted_model_is_made_anew_and_a_service_keeps_what_it_has_open(box: Box) -> None:
    spec = box.spec()
    model.run(spec)
    weights = box.directory / "model-00001.safetensors"
    with weights.open("rb") as open_there:
        assert model.doubt(str(box.directory)) and not files.is_complete(str(box.directory))
        assert not model.doubt(str(box.directory)), "nothing more to doubt"
        data = CONTENT["model-00001.safetensors"]
        path = Path(store.at({**spec["files"]["model-00001.safetensors"], "place": store.MODELS}))
        path.unlink()
        path.write_bytes(data)  # as when it came once more
        model.run(spec)
        assert open_there.read() == data and inode(weights) == inode(path)
    assert box.around() == ["r1"] and files.is_complete(str(box.directory))


def test_a_directory_that_was_fetched_before_there_was_a_store_stays(box: Box) -> None:
    """It has a mark of its time; once doubted, its files are taken into the store, and it is made of those."""
    spec = box.spec()
    for entry in spec["files"].values():
        os.unlink(store.at({**entry, "place": store.MODELS}))
    for name, data in CONTENT.items():
        (box.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (box.directory / name).write_bytes(data)
    files.complete(str(box.directory), {"name": "tiny", "revision": "r1", "files": {}})
    before = inode(box.directory)
    model.run(spec)
    assert inode(box.directory) == before
    assert model.doubt(str(box.directory))
    wanted = [{**entry, "place": "models", "at": [f"tiny/r1/{name}"]} for name, entry in spec["files"].items()]
    assert len(stock.run({"files": wanted, "check": True})["have"]) == len(CONTENT)
    weights = inode(box.directory / "model-00001.safetensors")
    model.run(spec)
    assert inode(box.directory) != before and inode(box.directory / "model-00001.safetensors") == weights


@pytest.mark.parametrize("moment", ["link", "rename", "complete"])
def test_it_can_be_cut_off_anywhere(box: Box, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    spec = box.spec()
    model.run(spec)
    model.doubt(str(box.directory))
    module: Any = files if moment == "complete" else os
    real, left = getattr(module, moment), [1]

    def cut(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] < 0 or moment == "complete":
            raise KeyboardInterrupt
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, moment, cut)
        with pytest.raises(KeyboardInterrupt):
            model.run(spec)
    assert not files.is_complete(str(box.directory))
    model.run(spec)
    assert box.around() == ["r1"] and files.is_complete(str(box.directory))
    assert (box.directory / "sub/merges.txt").read_bytes() == CONTENT["sub/merges.txt"]


@pytest.mark.parametrize(("code", "said"), [(errno.EXDEV, "two file systems"), (errno.EPERM, "no second name")])
def test_a_file_system_that_has_no_such_links(box: Box, monkeypatch: pytest.MonkeyPatch, code: int, said: str) -> None:
    def link(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    spec = box.spec()
    monkeypatch.setattr(os, "link", link)
    with pytest.raises(Failure, match=said):
        model.run(spec)


def test_the_store_is_no_model_of_the_box(box: Box, tmp_path: Path) -> None:
    home = tmp_path / "tree/opt/gpufleet/models"
    for name in ("tiny/r1", ".store/" + "a" * 64):
        (home / name).mkdir(parents=True)
    assert list(releases.read_stores(Roots(str(tmp_path / "tree")))["models"]) == ["tiny/r1"]


# Another MTP head


class Head:
    """Stands for hostkit.head."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.called: list[tuple[str, ...]] = []
        module = SimpleNamespace(replace=self.replace, overlay=self.overlay)
        monkeypatch.setattr(model, "head", module)

    def replace(self, directory: str, head: str) -> dict[str, Any]:
        self.called.append(("replace", directory, head))
        target = os.path.join(directory, os.path.basename(head))
        os.link(os.path.realpath(head), target)
        return {"tensors": 19}

    def overlay(self, source: str, directory: str, head: str) -> dict[str, Any]:
        self.called.append(("overlay", source, directory, head))
        os.makedirs(directory)
        return {"tensors": 19}


def test_a_head_is_put_in_before_the_mark(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(monkeypatch)
    known = {"file": "sub/model-mtp.safetensors", **box.store("sub/model-mtp.safetensors", b"head")}
    spec = box.spec(directory="r1+0123456789ab", head=known)
    directory = box.directory.with_name("r1+0123456789ab")
    model.run(spec)
    ((verb, aside, path),) = head.called
    assert (verb, aside, os.path.basename(path)) == ("replace", f"{directory}.incoming", "model-mtp.safetensors")
    assert (directory / "model-mtp.safetensors").read_bytes() == b"head"
    assert files.mark(str(directory))["head"] == {**known, "tensors": 19}
    assert box.around() == [directory.name]


def test_a_head_that_does_not_fit_leaves_no_model(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(monkeypatch)

    def replace(directory: str, path: str) -> dict[str, Any]:
        raise Failure("it is the head of another model", "give the right one")

    monkeypatch.setattr(model.head, "replace", replace)
    with pytest.raises(Failure, match="another model"):
        model.run(box.spec(head={"file": "h.safetensors", **box.store("h.safetensors", b"head")}))
    assert not box.directory.exists() and head.called == []


# What lies with its owner


@pytest.fixture
def there(box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(model, "PRIVATE", ("/nowhere/",))
    monkeypatch.setattr(model, "check_readable", lambda path: os.stat(path))
    found = tmp_path / "there"
    found.mkdir()
    (found / "config.json").write_text("{}")
    (found / "model.safetensors").write_text("")
    return found


def test_a_local_model_must_be_whole_and_readable(box: Box, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match="there is no directory /nowhere/tiny"):
        model.run(box.spec(path="/nowhere/tiny"))
    monkeypatch.setattr(model, "PRIVATE", (str(there.parent),))
    with pytest.raises(Failure, match="services have their own of"):
        model.run(box.spec(path=str(there)))
    monkeypatch.setattr(model, "PRIVATE", ("/nowhere/",))
    (there / "model.safetensors").unlink()
    with pytest.raises(Failure, match="no safetensors"):
        model.run(box.spec(path=str(there)))
    (there / "model.safetensors").write_text("")
    assert Path(model.run(box.spec(path=str(there)))["path"]).resolve() == there
    assert not model.doubt(str(box.directory)), "it is the owner's"


@pytest.mark.parametrize("indexed", [True, False])
def test_a_local_model_whose_head_is_drafted_with_has_one(box: Box, there: Path, indexed: bool) -> None:
    def put(*names: str) -> None:
        save_file({name: np.zeros(2, np.float32) for name in names}, there / "model.safetensors")
        if indexed:
            index = {"weight_map": dict.fromkeys(names, "model.safetensors")}
            (there / "model.safetensors.index.json").write_text(json.dumps(index))

    put("model.norm.weight")
    with pytest.raises(Failure, match=r"has no mtp\.\* tensors, with which chat would draft"):
        model.run(box.spec(path=str(there), drafting=["chat"]))
    assert not box.directory.exists()
    assert model.run(box.spec(path=str(there), drafting=[]))
    put("model.norm.weight", "mtp.fc.weight")
    assert model.run(box.spec(path=str(there), drafting=["chat"]))


def test_a_local_model_gets_another_head_in_a_directory_of_its_own(
    box: Box, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Head(monkeypatch)
    path = there.parent / "head.safetensors"
    with pytest.raises(OSError, match=r"head\.safetensors"):
        model.run(box.spec(path=str(there), files={}, head={"file": "head.safetensors", "path": str(path)}))
    path.write_text("")
    model.run(box.spec(path=str(there), files={}, head={"file": "head.safetensors", "path": str(path)}))
    assert head.called == [("overlay", str(there), f"{box.directory}.incoming", str(path))]
    assert box.directory.is_dir() and not box.directory.is_symlink()
    assert json.loads((box.directory / files.COMPLETE).read_text())["head"]["tensors"] == 19


def test_a_model_that_comes_from_outside_again_takes_the_place_of_the_link(box: Box, there: Path) -> None:
    model.run(box.spec(path=str(there)))
    model.run(box.spec())
    assert box.directory.is_dir() and not box.directory.is_symlink() and (there / "config.json").exists()
