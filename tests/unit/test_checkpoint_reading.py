"""Reading a checkpoint: which files are its own, what is missing or damaged, and where index and files disagree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpufleet.checkpoint import reading, wanted
from gpufleet.checkpoint.folder import Folder
from gpufleet.errors import ConfigError
from tests.unit.checkpoints import laid_out, write

INDEX = "model.safetensors.index.json"
ONE = laid_out(iter([("model.embed_tokens.weight", "BF16", [8, 4]), ("model.norm.weight", "BF16", [4])]))
TWO = laid_out(iter([("lm_head.weight", "BF16", [8, 4])]))


def put(folder: Path, index: dict[str, str] | None = None, **shards: dict[str, Any]) -> Folder:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    for name, headers in shards.items():
        write(folder / f"{name}.safetensors", headers)
    if index is not None:
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return Folder(folder)


def indexed(**files: dict[str, Any]) -> dict[str, str]:
    return {tensor: f"{name}.safetensors" for name, headers in files.items() for tensor in headers}


def test_all_shards_that_the_index_names(tmp_path: Path) -> None:
    found = reading.read(put(tmp_path, indexed(a=ONE, b=TWO), a=ONE, b=TWO))
    assert found.headers == ONE | TWO and found.config == {"model_type": "llama"}
    assert found.choice.shards == ["a.safetensors", "b.safetensors"] and found.notes == []
    assert found.choice.files == sorted(["a.safetensors", "b.safetensors", "config.json", INDEX])


def test_one_file_without_an_index(tmp_path: Path) -> None:
    found = reading.read(put(tmp_path, model=ONE, consolidated=ONE))
    assert found.headers == ONE and found.choice.shards == ["model.safetensors"]
    assert found.notes == ["consolidated.safetensors is left out: model.safetensors is the checkpoint"]


def test_several_files_without_an_index(tmp_path: Path) -> None:
    assert reading.read(put(tmp_path, a=ONE, b=TWO)).headers == ONE | TWO


def test_a_file_that_the_index_does_not_name_is_left_out(tmp_path: Path) -> None:
    found = reading.read(put(tmp_path, indexed(a=ONE), a=ONE, consolidated=TWO))
    assert found.headers == ONE
    assert found.notes == [f"consolidated.safetensors is left out: {INDEX} does not name it"]


def test_tensors_that_the_index_does_not_name_are_told(tmp_path: Path) -> None:
    found = reading.read(put(tmp_path, indexed(a=TWO), a=ONE | _after(ONE, TWO)))
    assert set(found.headers) == {"lm_head.weight"}
    assert found.notes == ["a.safetensors has 2 tensors that the index does not name there, such as " + next(iter(ONE))]


def _after(first: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """The headers of `then` as they are in one file behind `first`."""
    at = max(its["data_offsets"][1] for its in first.values())
    return {name: its | {"data_offsets": [place + at for place in its["data_offsets"]]} for name, its in then.items()}


@pytest.mark.parametrize(
    ("index", "shards", "problem"),
    [
        (None, {}, "has no safetensors files"),
        (indexed(a=ONE, b=TWO), {"a": ONE}, r"names b.safetensors, which is not there \(1 of 2 files\)"),
        (
            indexed(a=ONE | TWO),
            {"a": ONE},
            "names tensors that are not in their files: lm_head.weight of a.safetensors",
        ),
        (
            None,
            {"a": ONE, "b": ONE},
            "tensor model.embed_tokens.weight is in more than one file, last in b.safetensors",
        ),
        (None, {"model-00001-of-00003": ONE, "model-00003-of-00003": TWO}, "number 2 is missing"),
        (None, {"model-00001-of-00002": ONE}, "number 2 is missing"),
    ],
)
def test_what_is_not_whole(tmp_path: Path, index: dict[str, str] | None, shards: dict[str, Any], problem: str) -> None:
    folder = put(tmp_path, index, **shards)
    with pytest.raises(ConfigError, match=problem) as raised:
        reading.read(folder)
    assert raised.value.problems[0].startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("config.json", b"{", "config.json cannot be read"),
        (INDEX, b"{}", "no weight_map of tensors"),
        (INDEX, b"[]", "cannot be read"),
        (INDEX, b'{"weight_map": {}}', "no weight_map of tensors"),
        (INDEX, b'{"weight_map": {"a": 1}}', "no weight_map of tensors"),
        ("model.safetensors", b"version https://git-lfs", "is no safetensors file, or damaged"),
        ("model.safetensors", b"", "is truncated"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    folder = put(tmp_path, None, model=ONE)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=problem) as raised:
        reading.read(folder)
    assert name in raised.value.problems[0]


def test_a_truncated_shard_is_found_by_its_header(tmp_path: Path) -> None:
    folder = put(tmp_path, None, model=ONE)
    with (tmp_path / "model.safetensors").open("r+b") as handle:
        handle.truncate((tmp_path / "model.safetensors").stat().st_size - 1)
    with pytest.raises(ConfigError, match=r"model\.safetensors is truncated: it has"):
        reading.read(folder)


def test_a_header_longer_than_the_first_part(tmp_path: Path) -> None:
    long = laid_out(iter((f"model.layers.{at}.mlp.up_proj.weight", "U8", [1]) for at in range(2000)))
    assert len(json.dumps(long)) > reading.FIRST
    assert reading.read(put(tmp_path, None, model=long)).headers == long


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        Folder(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        reading.read(Folder(tmp_path))


KEPT = (
    "config.json",
    "tokenizer.json",
    "merges.txt",
    "modeling_x.py",
    "chat_template.jinja",
    "LICENSE",
    "model.safetensors",
)


@pytest.mark.parametrize(
    "name",
    [".gitattributes", "README.md", "docs/notes.md", "a.png", "x/b.JPG", "pytorch_model.bin", "x.pth", "m.gguf",
     "original/params.json", "original/consolidated.00.safetensors", "metal/model.bin", "onnx/model.onnx", "a.h5",
     "pytorch_model.bin.index.json", ".cache/huggingface/x.json", "SHA256SUMS"],
)  # fmt: skip
def test_files_that_no_engine_reads_are_left_out(name: str) -> None:
    assert wanted.choose([*KEPT, name], None, "org/m").files == sorted(KEPT)


def test_a_file_in_a_folder_that_an_engine_reads_stays() -> None:
    assert "1_Pooling/config.json" in wanted.choose([*KEPT, "1_Pooling/config.json"], None, "org/m").files


def test_a_name_that_no_page_can_have() -> None:
    with pytest.raises(ConfigError, match=r"org/m: 'my tokenizer\.json' is no name that a page can have"):
        wanted.choose([*KEPT, "my tokenizer.json"], None, "org/m")
