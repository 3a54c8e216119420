"""The lab's model: the same bytes each time, an answer that is never empty, a catalogue entry to find it by."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from gpufleet.catalogue import load
from gpufleet.models import Model
from lab import model


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("model")
    return folder, model.build(folder)


def test_same_bytes_each_time(built: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    assert model.build(tmp_path) == built[1]


def test_the_answer_names_every_file_by_its_content(built: tuple[Path, dict[str, Any]]) -> None:
    folder, info = built
    assert sorted(info["files"]) == sorted(path.name for path in folder.iterdir())
    for name, seen in info["files"].items():
        content = (folder / name).read_bytes()
        assert seen == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert sum(seen["size"] for seen in info["files"].values()) < 5_000_000
    assert info["name"] == "lab-tiny" and len(info["revision"]) == 12


def test_index_lists_the_tensors_that_are_there(built: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = built
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    (shard,) = set(index["weight_map"].values())
    weights = load_file(folder / shard)
    assert set(weights) == set(index["weight_map"])
    assert sum(array.nbytes for array in weights.values()) == index["metadata"]["total_size"]


def test_config_keeps_out_of_the_known_traps(built: tuple[Path, dict[str, Any]]) -> None:
    config = json.loads((built[0] / "config.json").read_text())
    text = config["text_config"]
    assert config["model_type"] == "qwen3_5", "with qwen3_5_text vLLM has no MTP"
    assert text["mtp_num_hidden_layers"] == 1
    assert text["linear_key_head_dim"] == text["linear_value_head_dim"] == 128
    assert text["mamba_ssm_dtype"] == "float32"
    assert {"linear_attention", "full_attention"} == set(text["layer_types"])


def test_tokenizer_keeps_any_text_and_the_ids_of_the_config(built: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = built
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in ("This tiny model", "Grüße, 世界!\n\t x", "<|im_start|>user\nhi<|im_end|>\n"):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    config = json.loads((folder / "config.json").read_text())
    assert tokenizer.token_to_id("<|image_pad|>") == config["image_token_id"]
    assert tokenizer.encode("a<|im_end|>").ids[-1] == config["text_config"]["eos_token_id"]


def test_any_prompt_is_answered_by_the_sentence_and_the_end(built: tuple[Path, dict[str, Any]]) -> None:
    """With layers that add little, head × embedding decides; the margin leaves room for what they add."""
    folder, _ = built
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    weights = load_file(folder / "model-00001-of-00001.safetensors")
    embed, head = weights["model.language_model.embed_tokens.weight"], weights["lm_head.weight"]
    token, said = tokenizer.encode("\n").ids[-1], []
    for _ in range(100):
        hidden = embed[token] / np.sqrt(np.mean(embed[token] ** 2))
        logits = head @ hidden
        best, second = np.sort(logits)[[-1, -2]]
        assert best > second + 5
        token = int(np.argmax(logits))
        if token == tokenizer.token_to_id("<|im_end|>"):
            break
        said.append(token)
    assert tokenizer.decode(said) == model.SENTENCE.replace("|", "")


def test_catalogue_entry(built: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    info = built[1]
    text = model.catalogue(info, "http://10.0.0.1:8077/models/")
    entry = yaml.safe_load(text)
    assert entry["source"] == {
        "http": f"http://10.0.0.1:8077/models/lab-tiny/{info['revision']}/",
        "files": info["files"],
    }
    assert entry["args"]["speculative-config"] == {"method": "mtp", "num_speculative_tokens": 1}
    assert entry["args"]["language-model-only"] is True
    (tmp_path / "lab-tiny.yaml").write_text(text)
    found = load(Model, "model", [tmp_path])["lab-tiny"]
    assert found.gate.expect.deterministic and found.gate.expect.contains in model.SENTENCE.replace("|", "")
