"""The verb `model_check`: what it finds wrong of files, and what it gives back of those that are right."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpufleet.checks.facts import unpacked
from hostkit import files, model, model_check
from hostkit.errors import Failure
from tests.unit.tiny_checkpoint import BYTES, SHARDS, TEMPLATE, checkpoint, index, pins, shard

FIRST, SECOND = SHARDS
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "m")


def look(folder: Path, pinned: dict[str, Any] | None = None, deep: bool = False, **more: Any) -> dict[str, Any]:
    return model_check.look(str(folder), pinned or {}, more.pop("pieces", {}), more.pop("head", None), deep)


def said(found: dict[str, Any]) -> list[str]:
    return [f"{item['file']} {item['cause']}" for item in found["problems"]]


def whole_map() -> dict[str, str]:
    return {tensor: name for name, tensors in SHARDS.items() for tensor in tensors}


def test_a_whole_checkpoint_has_no_problem_and_tells_what_it_is(folder: Path) -> None:
    found = look(folder, pins(folder), deep=True)
    assert found["problems"] == [] and found["damaged"] == []
    assert found["texts"]["chat_template.jinja"] == TEMPLATE
    assert set(found["texts"]) == {"config.json", "tokenizer_config.json", "chat_template.jinja"}
    assert found["tokenizer"] == {"decoder": ["ByteLevel"], "model": "BPE"}
    tensors = unpacked(found["tensors"])
    assert tensors == {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, BYTES[dtype] * math.prod(shape)]}
        for shard in SHARDS.values()
        for name, (dtype, shape) in shard.items()
    }
    assert found["files"] == len(pins(folder))
    json.dumps(found)  # it goes over the wire


def test_a_truncated_shard_is_damaged(folder: Path) -> None:
    data = (folder / FIRST).read_bytes()
    (folder / FIRST).write_bytes(data[:-1])
    found = look(folder)
    assert found["damaged"] == [FIRST]
    (problem,) = [item for item in found["problems"] if item["file"] == FIRST]
    assert "truncated" in problem["cause"] and str(folder) not in problem["cause"]


def test_a_shard_that_lacks_is_named_with_what_was_in_it(folder: Path) -> None:
    (folder / SECOND).unlink()
    found = look(folder)
    assert said(found) == [f"{SECOND} is missing; the index has 3 tensors in it"]
    assert found["damaged"] == [SECOND]


def test_what_is_pinned_is_told_once(folder: Path) -> None:
    wanted = pins(folder)
    (folder / SECOND).unlink()
    with (folder / FIRST).open("ab") as handle:
        handle.write(b"x")
    assert said(look(folder, wanted)) == [
        f"{FIRST} has {wanted[FIRST]['size'] + 1} bytes, {wanted[FIRST]['size']} are pinned",
        f"{SECOND} is missing (No such file or directory)",
    ]


def test_a_flipped_bit_is_found_by_reading_deep_only(folder: Path) -> None:
    wanted = pins(folder)
    data = bytearray((folder / FIRST).read_bytes())
    data[-1] ^= 1
    (folder / FIRST).write_bytes(data)
    assert look(folder, wanted)["problems"] == []
    found = look(folder, wanted, deep=True)
    assert found["damaged"] == [FIRST]
    assert "its sha256 is" in said(found)[0] and wanted[FIRST]["sha256"] in said(found)[0]


def test_with_pieces_it_says_where_the_damage_begins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_check, "PIECE", 64)
    data = bytearray((folder / FIRST).read_bytes())
    pieces = [hashlib.sha256(data[at : at + 64]).hexdigest() for at in range(0, len(data), 64)]
    wanted = pins(folder)
    data[130] ^= 1
    (folder / FIRST).write_bytes(data)
    found = look(folder, wanted, deep=True, pieces={FIRST: pieces})
    assert said(found) == [f"{FIRST} is damaged: 1 of {len(pieces)} pieces differ, the first from byte 128 on"]


def test_index_and_shards_that_do_not_agree(folder: Path) -> None:
    moved = whole_map() | {"mtp.fc.weight": FIRST}
    index(folder, moved)
    assert said(look(folder)) == [
        f"{INDEX} the index has mtp.fc.weight in {FIRST}, which has not",
        f"{INDEX} {SECOND} has mtp.fc.weight, for which the index names another shard: stale",
    ]


def test_tensors_that_no_shard_has_and_that_no_index_names(folder: Path) -> None:
    named = whole_map() | {"mtp.one": SECOND, "mtp.two": SECOND}
    del named["mtp.norm.weight"]
    index(folder, named)
    assert said(look(folder)) == [
        f"{INDEX} the index has mtp.one and 1 more tensors in {SECOND}, which has not",
        f"{INDEX} {SECOND} has mtp.norm.weight, which the index does not name",
    ]


@pytest.mark.parametrize("text", ["{", '{"weight_map": {"a": "../x.safetensors"}}', '{"weight_map": []}', "{}"])
def test_an_index_that_is_none_is_damaged_and_leads_nowhere(folder: Path, text: str) -> None:
    (folder / INDEX).write_text(text)
    found = look(folder)
    assert found["damaged"] == [INDEX]
    assert len(unpacked(found["tensors"])) == 6  # of the shards that lie there


def test_without_an_index_the_shards_are_those_that_lie_there(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert said(look(folder)) == [" there are no safetensors files"]
    shard(folder / "model.safetensors", SHARDS[SECOND])
    found = look(folder)
    assert found["problems"] == [] and len(unpacked(found["tensors"])) == 3


def test_a_config_that_lacks_or_is_no_text(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "tokenizer_config.json").write_bytes(b"\xff\xfe")
    found = look(folder)
    assert found["damaged"] == ["config.json", "tokenizer_config.json"]
    (folder / "config.json").write_text(" " * (model_check.LARGEST_TEXT + 1))
    assert "config.json cannot be read: it has more than 2 MiB" in said(look(folder))


def test_of_a_tokenizer_only_its_kinds_are_told(folder: Path) -> None:
    steps = {"type": "Sequence", "decoders": [{"type": "Replace"}, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    (folder / "tokenizer.json").write_text(json.dumps({"decoder": steps, "model": {"type": "BPE", "vocab": {"a": 1}}}))
    assert look(folder)["tokenizer"] == {"decoder": ["Replace", "ByteFallback", "Fuse"], "model": "BPE"}
    (folder / "tokenizer.json").write_text("[]")
    assert look(folder)["tokenizer"] == {"error": "cannot be read (AttributeError)"}
    (folder / "tokenizer.json").unlink()
    assert look(folder)["tokenizer"] == {}


def test_with_a_replaced_head_what_was_lies_beside_it(folder: Path) -> None:
    wanted = pins(folder)
    head = folder / "model-mtp.safetensors"
    shard(head, {"mtp.norm.weight": ("BF16", [4])})
    for name in (SECOND, INDEX):
        (folder / name).rename(folder / f"{name}.original")
    shard(folder / SECOND, {"model.language_model.embed_tokens.weight": ("BF16", [16, 4])})
    others = {name: where for name, where in whole_map().items() if not name.startswith("mtp.")}
    index(folder, others | {"mtp.norm.weight": head.name})
    declared = {"file": head.name, "sha256": pins(folder)[head.name]["sha256"]}
    found = look(folder, wanted, deep=True, head=declared)
    assert found["problems"] == []
    assert [name for name in unpacked(found["tensors"]) if name.startswith("mtp.")] == ["mtp.norm.weight"]
    assert look(folder, wanted, deep=True, head={**declared, "sha256": "0" * 64})["damaged"] == [head.name]
    (folder / f"{SECOND}.original").write_bytes(b"")
    assert look(folder, wanted, head=declared)["damaged"] == [f"{SECOND}.original"]


# On a box.


def spec(**more: Any) -> dict[str, Any]:
    return {"name": "m", "directory": "r1", "deep": True, **more}


def test_a_damaged_model_of_the_box_loses_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MODELS", str(tmp_path))
    monkeypatch.setattr(model, "check_readable", lambda path: None)
    folder = checkpoint(tmp_path / "m" / "r1")
    wanted = pins(folder)
    files.complete(str(folder), {"name": "m"})
    assert model_check.run(spec(files=wanted))["doubted"] is False and files.is_complete(str(folder))
    data = bytearray((folder / FIRST).read_bytes())
    data[-1] ^= 1
    (folder / FIRST).write_bytes(data)
    found = model_check.run(spec(files=wanted))
    assert found["doubted"] is True and not files.is_complete(str(folder))
    assert found["path"] == str(folder)
    assert model_check.run(spec(files=wanted))["doubted"] is False  # it is doubtful already


def test_what_the_owner_has_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MODELS", str(tmp_path))
    monkeypatch.setattr(model, "check_readable", lambda path: None)
    folder = checkpoint(tmp_path / "owners")
    (tmp_path / "m").mkdir()
    os.symlink(folder, tmp_path / "m" / "r1")
    (folder / FIRST).write_bytes(b"")
    found = model_check.run(spec())
    assert found["damaged"] == [FIRST] and found["doubted"] is False


def test_what_the_services_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MODELS", str(tmp_path))
    monkeypatch.setattr(model, "check_readable", readable_but(SECOND))
    checkpoint(tmp_path / "m" / "r1")
    assert said(model_check.run(spec())) == [f"{SECOND} is not readable by the user gpufleet"]


def readable_but(name: str) -> Callable[[str], None]:
    """A stand-in of `check_readable`: below pytest's own folder, which is closed, it would find all of them."""

    def check(path: str) -> None:
        if path.endswith(name):
            raise Failure(f"{path} is not readable by the user gpufleet", "chmod o+r it")

    return check


def test_a_model_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MODELS", str(tmp_path))
    found = model_check.run(spec())
    assert said(found) == [" is not on this box"]
