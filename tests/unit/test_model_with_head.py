"""A model with another MTP head on a box: made by the verb, looked through by the check, mended and left again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hostkit import files, model, model_check, store
from tests.unit import heads
from tests.unit.test_model_verb import Box

INDEX, MTP = "model.safetensors.index.json", "model-mtp.safetensors"
WITH = "r1+0123456789ab"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr(model, "check_readable", lambda path: None)  # pytest's own folder is closed
    return Box(tmp_path, monkeypatch)


@pytest.fixture(params=["separate", "mixed"])
def wanted(request: pytest.FixtureRequest, box: Box, tmp_path: Path) -> dict[str, Any]:
    """The files of a checkpoint, in the store of the box."""
    folder = getattr(heads, request.param)(tmp_path / "published")
    return {path.name: box.store(path.name, path.read_bytes()) for path in folder.iterdir()}


def head_of(box: Box, name: str, value: float = 3) -> dict[str, Any]:
    content = heads.head(box.directory.parents[2] / "heads" / str(value) / "x.safetensors", value=value)
    return {"file": name, **box.store(name, content.read_bytes())}


def deploy(box: Box, wanted: dict[str, Any], head: dict[str, Any]) -> Path:
    """The directory that the verb makes."""
    return Path(model.run(box.spec(files=wanted, directory=WITH, head=head))["path"])


def check(wanted: dict[str, Any], head: dict[str, Any]) -> dict[str, Any]:
    declared = {"file": head["file"], "sha256": head["sha256"]}
    spec = {"name": "tiny", "directory": WITH, "files": wanted, "head": declared, "deep": True}
    return model_check.run(spec)


# Under its own name; from a folder of its source; and one whose name the model's own weights may have.
@pytest.mark.parametrize("name", [MTP, "mtp/model-mtp.safetensors", "model-1.safetensors"])
def test_what_the_verb_makes_the_check_finds_whole(name: str, box: Box, wanted: dict[str, Any]) -> None:
    head = head_of(box, name)
    directory = deploy(box, wanted, head)
    found = check(wanted, head)
    assert (found["problems"], found["damaged"], found["doubted"]) == ([], [], False)
    mark = files.mark(str(directory))["head"]
    assert (directory / mark["file"]).stat().st_ino == os.stat(store.at({**head, "place": store.MODELS})).st_ino
    assert (mark["tensors"], mark["dropped"]) == (19, 785)


def test_a_damaged_head_is_found_and_mended(box: Box, wanted: dict[str, Any]) -> None:
    head = head_of(box, MTP)
    directory = deploy(box, wanted, head)
    content = bytearray((directory / MTP).read_bytes())
    content[-1] ^= 1
    (directory / MTP).write_bytes(content)  # the store's file, too: it is the same
    found = check(wanted, head)
    assert (found["damaged"], found["doubted"]) == ([MTP], True)
    head_of(box, MTP)  # what a deploy brings
    deploy(box, wanted, head)
    assert check(wanted, head)["problems"] == []


def test_the_model_without_it_is_beside_it_as_it_was(box: Box, wanted: dict[str, Any]) -> None:
    deploy(box, wanted, head_of(box, MTP))
    plain = Path(model.run(box.spec(files=wanted))["path"])
    assert box.around() == ["r1", WITH]
    for name, known in wanted.items():
        assert files.sha256(str(plain / name)) == known["sha256"]
    assert not list(plain.glob("*.original"))
