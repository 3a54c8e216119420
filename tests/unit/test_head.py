"""The MTP head of a checkpoint replaced: exactly the new tensors, twice the same, at whatever step it is cut off."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from hostkit import head, safetensors
from hostkit.errors import Failure
from tests.unit import heads
from tests.unit.heads import BODY, CONFIG, NEW, OLD, links, tree

INDEX = "model.safetensors.index.json"
MTP = "model-mtp.safetensors"


@pytest.fixture(params=["separate", "mixed"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The files of a checkpoint, the old head in a file of its own or among other tensors."""
    make: Callable[[Path], Path] = getattr(heads, request.param)
    return make(tmp_path / "store")


def loaded(folder: Path) -> dict[str, float]:
    """What an engine reads: every tensor of every file that the index names, by its first number."""
    found = {}
    for name in sorted(set(index(folder)["weight_map"].values())):
        for tensor, array in load_file(folder / name).items():
            assert tensor not in found, f"{tensor} is there twice"
            assert np.all(array == array.flat[0])
            found[tensor] = float(array.flat[0])
    return found


def index(folder: Path) -> Any:
    return json.loads((folder / INDEX).read_text())


def replaced(folder: Path, new: Path) -> dict[str, Any]:
    return head.replace(str(folder), str(new))


RIGHT = {**dict.fromkeys(BODY, 1.0), **dict.fromkeys(NEW, 3.0)}


def test_785_old_tensors_become_the_19_new_ones(store: Path, tmp_path: Path) -> None:
    assert (len(OLD), len(NEW)) == (785, 19)
    before, folder = tree(store), links(store, tmp_path / "model")
    said = replaced(folder, heads.head(tmp_path / "new" / MTP))
    assert loaded(folder) == RIGHT
    found = index(folder)
    assert {name for name in found["weight_map"] if name.startswith("mtp.")} == set(NEW)
    assert {name: shard for name, shard in found["weight_map"].items() if name not in NEW} == {
        name: shard for name, shard in index(store)["weight_map"].items() if name in BODY
    }
    bytes_ = heads.size(BODY | NEW)
    assert found["metadata"] == {"total_size": bytes_, "by": "x"}
    assert (said["file"], said["tensors"], said["dropped"]) == (MTP, 19, 785)
    assert said["bytes"] == heads.size(NEW)
    assert tree(store) == before, "what others link to was written into"


def test_no_weight_file_of_the_folder_keeps_an_old_tensor(store: Path, tmp_path: Path) -> None:
    """vLLM's AWQ looks at all files, named by the index or not, for what is quantised."""
    folder = links(store, tmp_path / "model")
    (folder / "not-named.safetensors").write_bytes((folder / MTP).read_bytes()) if (folder / MTP).exists() else None
    replaced(folder, heads.head(tmp_path / "new" / MTP))
    headers = [safetensors.header(str(path)) for path in folder.glob("*.safetensors")]
    assert sorted(name for header in headers for name in header) == sorted(RIGHT)


def test_originals_stay_as_links_that_cost_nothing(store: Path, tmp_path: Path) -> None:
    folder = links(store, tmp_path / "model")
    said = replaced(folder, heads.head(tmp_path / "new" / MTP))
    kept = [name.removesuffix(".original") for name in said["originals"]]
    changed = {INDEX, *(name for name, header in headers(store).items() if set(header) & set(OLD))}
    assert set(kept) == changed
    for name in kept:
        assert os.path.samefile(folder / f"{name}.original", store / name)
    for path in store.iterdir():
        if path.name not in changed:
            assert os.path.samefile(folder / path.name, path)
    assert os.path.samefile(folder / MTP, tmp_path / "new" / MTP)


def headers(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.name: safetensors.header(str(path)) for path in folder.glob("*.safetensors")}


def test_a_shard_written_anew_is_one_that_the_library_reads(tmp_path: Path) -> None:
    folder = links(heads.mixed(tmp_path / "store"), tmp_path / "model")
    replaced(folder, heads.head(tmp_path / "new" / MTP))
    for name in ("model-1.safetensors", "model-2.safetensors"):
        with safe_open(folder / name, framework="np") as file:
            assert file.metadata() == {"format": "pt"}
        header_bytes = int.from_bytes((folder / name).read_bytes()[:8], "little")
        assert header_bytes % 8 == 0
        assert (folder / name).stat().st_mode & 0o777 == 0o644


def test_done_twice_it_changes_nothing(store: Path, tmp_path: Path) -> None:
    folder, new = links(store, tmp_path / "model"), heads.head(tmp_path / "new" / MTP)
    first = replaced(folder, new)
    before = tree(folder)
    assert replaced(folder, new) == first
    assert tree(folder) == before


def test_without_an_index_one_is_made(tmp_path: Path) -> None:
    tensors = heads.filled(BODY, 1) | heads.filled(OLD, 2)
    store = heads.write(tmp_path / "store", {"model.safetensors": tensors}, index=False)
    folder, new = links(store, tmp_path / "model"), heads.head(tmp_path / "new" / MTP)
    first = replaced(folder, new)
    assert loaded(folder) == RIGHT
    assert set(index(folder)["weight_map"]) == set(RIGHT)
    assert index(folder)["metadata"] == {"total_size": heads.size(BODY | NEW)}
    assert first["originals"] == ["model.safetensors.original"]
    before = tree(folder)
    assert replaced(folder, new)["originals"] == first["originals"]
    assert tree(folder) == before


def test_a_model_without_a_head_gets_one(tmp_path: Path) -> None:
    store = heads.write(tmp_path / "store", {"model.safetensors": heads.filled(BODY, 1)})
    folder = links(store, tmp_path / "model")
    assert replaced(folder, heads.head(tmp_path / "new" / MTP))["dropped"] == 0
    assert loaded(folder) == RIGHT


@pytest.mark.parametrize("name", ["model-00001-of-00001.safetensors", "head.bin", "consolidated.safetensors"])
def test_a_head_whose_name_is_taken_or_not_read_has_the_usual_one(name: str, tmp_path: Path) -> None:
    folder = links(heads.separate(tmp_path / "store"), tmp_path / "model")
    said = replaced(folder, heads.head(tmp_path / "new" / name))
    assert said["file"] == MTP
    assert loaded(folder) == RIGHT


def test_another_head_after_it_takes_its_place(store: Path, tmp_path: Path) -> None:
    folder = links(store, tmp_path / "model")
    said = replaced(folder, heads.head(tmp_path / "new" / MTP))
    again = replaced(folder, heads.head(tmp_path / "newer" / MTP, value=4))
    assert loaded(folder) == RIGHT | dict.fromkeys(NEW, 4.0)
    assert set(said["originals"]) <= set(again["originals"])
    for name in said["originals"]:
        assert os.path.samefile(folder / name, store / name.removesuffix(".original"))


CHANGES = ["link", "symlink", "replace", "rename", "unlink", "fsync", "fchmod"]


def cut_off(number: int, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> bool:
    """Do the work in another process that is gone before its change of this number; True when it came to its end."""
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 9), code
        return code == 0
    left = number

    def guarded(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            if not left:
                os._exit(9)
            left -= 1
            return change(*arguments, **named)

        return call

    try:
        for name in CHANGES:
            monkeypatch.setattr(os, name, guarded(getattr(os, name)))
        work()
    except BaseException:
        os._exit(1)
    os._exit(0)


def test_cut_off_at_any_step_it_ends_right(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = heads.head(tmp_path / "new" / MTP)
    before = tree(store)
    whole = links(store, tmp_path / "whole")
    replaced(whole, new)
    steps = 0
    while True:
        folder = links(store, tmp_path / f"model-{steps}")
        done = cut_off(steps, monkeypatch, lambda folder=folder: replaced(folder, new))  # type: ignore[misc]
        replaced(folder, new)
        assert tree(folder, times=False) == tree(whole, times=False), steps
        assert tree(store) == before
        if done:
            break
        steps += 1
    assert steps >= 8, "it was not cut off at all"


def test_a_shard_half_written_is_written_anew(tmp_path: Path) -> None:
    folder = links(heads.mixed(tmp_path / "store"), tmp_path / "model")
    (folder / "model-1.safetensors.part").write_bytes(b"half of it")
    (folder / ".gpufleet-x1").write_bytes(b"half of an index")
    replaced(folder, heads.head(tmp_path / "new" / MTP))
    assert loaded(folder) == RIGHT
    assert not list(folder.glob("*.part")) and not list(folder.glob(".gpufleet-*"))


def test_without_the_head_the_same_store_gives_the_old_model(store: Path, tmp_path: Path) -> None:
    """The way back: a folder of its own, of the same files."""
    replaced(links(store, tmp_path / "with"), heads.head(tmp_path / "new" / MTP))
    without = links(store, tmp_path / "without")
    assert loaded(without) == {**dict.fromkeys(BODY, 1.0), **dict.fromkeys(OLD, 2.0)}
    assert len([name for name in index(without)["weight_map"] if name.startswith("mtp.")]) == 785


FC = np.zeros((8, 15), np.float16)
LAYER_1 = {"mtp.layers.1.input_layernorm.weight": (8,)}


@pytest.mark.parametrize(
    ("shapes", "more", "said"),
    [
        (NEW, {"model.norm.weight": np.zeros(8, np.float16)}, r"holds the tensor model\.norm\.weight"),
        (NEW, {"mtp.fc.weight": FC}, r"mtp\.fc\.weight has the shape \[8, 15\], and by config\.json it has \[8, 16\]"),
        ({name: NEW[name] for name in NEW if "q_norm" not in name}, {}, r"lacks mtp\.layers\.0\.self_attn\.q_norm"),
        (NEW | LAYER_1, {}, r"mtp\.layers\.1\.input_layernorm\.weight: config\.json says 1 MTP layers"),
        (NEW | {"mtp.lm_head.weight": (8, 8)}, {}, r"mtp\.lm_head\.weight: the model's head has no such tensor"),
        (OLD | {f"{heads.MLP}experts.256.up_proj.weight": (2, 8)}, {}, r"experts\.256\.up_proj\.weight: the"),
        ({}, {}, "holds no tensors"),
    ],
)  # fmt: skip
def test_a_head_that_is_not_this_models_is_refused_by_tensor(
    shapes: heads.Shapes, more: dict[str, np.ndarray], said: str, store: Path, tmp_path: Path
) -> None:
    folder, new = links(store, tmp_path / "model"), heads.head(tmp_path / "new" / MTP, shapes, **more)
    before = tree(folder)
    with pytest.raises(Failure, match=said) as caught:
        replaced(folder, new)
    assert caught.value.everywhere and str(new) in caught.value.cause and "mtp_head" in caught.value.remedy
    assert tree(folder) == before


def test_a_damaged_head_changes_nothing(store: Path, tmp_path: Path) -> None:
    folder, new = links(store, tmp_path / "model"), heads.head(tmp_path / "new" / MTP)
    os.truncate(new, new.stat().st_size - 1)
    before = tree(folder)
    with pytest.raises(Failure, match="truncated"):
        replaced(folder, new)
    assert tree(folder) == before


def test_a_head_with_each_expert_for_itself_is_one_too(store: Path, tmp_path: Path) -> None:
    folder = links(store, tmp_path / "model")
    assert replaced(folder, heads.head(tmp_path / "new" / MTP, OLD))["tensors"] == 785
    assert loaded(folder) == {**dict.fromkeys(BODY, 1.0), **dict.fromkeys(OLD, 3.0)}


DENSE = {
    "model_type": "qwen3_5",
    "text_config": {
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 4,
        "vocab_size": 32,
        "intermediate_size": 16,
    },
}
DENSE_HEAD = {name: shape for name, shape in NEW.items() if ".mlp." not in name} | {
    f"{heads.MLP}gate_proj.weight": (16, 8),
    f"{heads.MLP}up_proj.weight": (16, 8),
    f"{heads.MLP}down_proj.weight": (8, 16),
}


def test_a_dense_models_head_is_known_from_a_mixtures(tmp_path: Path) -> None:
    files = {"model.safetensors": heads.filled(BODY, 1)}
    folder = links(heads.write(tmp_path / "store", files, config=DENSE), tmp_path / "model")
    with pytest.raises(Failure, match=r"mlp\.experts\.down_proj: the model's head has no such tensor"):
        replaced(folder, heads.head(tmp_path / "moe" / MTP))
    assert replaced(folder, heads.head(tmp_path / "dense" / MTP, DENSE_HEAD))["tensors"] == 15


def test_of_another_family_only_the_names_are_known(tmp_path: Path) -> None:
    files = {"model.safetensors": heads.filled(BODY, 1)}
    config = {**CONFIG, "model_type": "another"}
    folder = links(heads.write(tmp_path / "store", files, config=config), tmp_path / "model")
    new = heads.head(tmp_path / "new" / MTP, {"mtp.anything": (1, 2)})
    assert replaced(folder, new)["tensors"] == 1
    assert index(folder)["weight_map"]["mtp.anything"] == MTP


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (INDEX, "{", "index.json cannot be read"),
        (INDEX, '{"weight_map": []}', "index.json cannot be read"),
        (INDEX, '{"weight_map": {"a": "gone.safetensors"}}', "names gone.safetensors, which is not there"),
        ("config.json", "[]", "config.json cannot be read"),
        ("config.json", '{"model_type": "qwen3_5"}', "does not say what the MTP head is like: KeyError.'hidden_size'"),
    ],
)
def test_a_model_that_cannot_be_read_is_left_alone(name: str, content: str, said: str, tmp_path: Path) -> None:
    folder = links(heads.separate(tmp_path / "store"), tmp_path / "model")
    (folder / name).unlink()
    (folder / name).write_text(content)
    before = tree(folder)
    with pytest.raises(Failure, match=said):
        replaced(folder, heads.head(tmp_path / "new" / MTP))
    assert tree(folder) == before
