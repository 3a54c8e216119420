"""Checkpoints made to harm: whatever a stranger's files hold, one line says what is wrong, and nothing is written."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpufleet.checkpoint import facts, folder, quantization
from gpufleet.checkpoint.config import UnknownFact
from gpufleet.cli import main
from hostkit import model_check, safetensors
from hostkit.errors import Failure
from tests.unit.checkpoints import plain, qwen, write
from tests.unit.test_models_command import CONFIG, checkpoint, fleet

__all__ = ["checkpoint", "fleet"]  # fixtures
INDEX = "model.safetensors.index.json"
DEEP = "[" * 100_000
NEWLINE = "a\ngpufleet: all is well\x1b[2J"


def add(source: object, *words: str) -> tuple[int, str]:
    """(exit code, what is said last)"""
    found = CliRunner().invoke(main, ["models", "add", str(source), "--name", "m", *words])
    assert found.exception is None or isinstance(found.exception, SystemExit), repr(found.exception)
    lines = [line for line in found.stderr.splitlines() if line.startswith("gpufleet: ")]
    assert len(lines) == 1
    assert len(lines[0]) < 2500 and "\x1b" not in found.output
    return found.exit_code, lines[0]


def with_config(**changes: Any) -> Callable[[Path], object]:
    def change(at: Path) -> None:
        found = copy.deepcopy(CONFIG)
        found["text_config"].update(changes)
        (at / "config.json").write_text(json.dumps(found))

    return change


def with_text(name: str, text: str | bytes) -> Callable[[Path], object]:
    return lambda at: (at / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def with_header(header: dict[str, Any] | bytes, more: int = 8) -> Callable[[Path], object]:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return with_text("model.safetensors", len(text).to_bytes(8, "little") + text + bytes(more))


def tensor(shape: Any, name: str = "a", end: int = 8, dtype: str = "F16") -> dict[str, Any]:
    return {name: {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}


def huge(name: str) -> Callable[[Path], object]:
    def change(at: Path) -> None:
        with (at / name).open("wb") as handle:
            handle.truncate(50 << 30)  # a hole, which takes no room

    return change


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "layers": (with_config(num_hidden_layers=10**9, layer_types=None, full_attention_interval=4), "more than 10000"),
    "width": (with_config(hidden_size=10**300), "hidden_size is 1000"),
    "nan": (with_config(vocab_size=float("nan")), "vocab_size is nan"),
    "long text": (with_config(vocab_size="x" * 1_000_000), "vocab_size is 'xxx"),
    "kinds": (with_config(layer_types=[NEWLINE * 1000, "full_attention"]), "are not known"),
    "deep": (with_text("config.json", DEEP), "config.json cannot be read"),
    "long config": (huge("config.json"), "config.json has 53687091200 bytes"),
    "family": (with_text("config.json", json.dumps({**CONFIG, "model_type": NEWLINE})), "no name of a family"),
    "surrogate": (with_text("config.json", json.dumps({**CONFIG, "model_type": "\ud800"})), "no name of a family"),
    "deep header": (with_header(b'{"a":' * 100_000), "its header cannot be read"),
    "tensor's name": (with_header(tensor([5], NEWLINE)), "tensor a gpufleet: all is well"),
    "long name": (with_header(tensor([5], "a" * 1_000_000)), "cannot take 8 bytes"),
    "dimensions": (with_header(tensor([1] * 300_000)), "has shape [1, 1"),
    "long numbers": (with_header(tensor([10**4000] * 20)), "has shape [1000"),
    "offset": (with_header(tensor([], dtype="X", end=10**300)), "ends at 1000"),
    "weights": (with_header(tensor([], dtype="X", end=(1 << 63) - 1), more=0), "is truncated"),
    "overlap": (
        with_header({**tensor([4]), "b": {"dtype": "F16", "shape": [4], "data_offsets": [4, 12]}}, 12),
        "tensor b lies at 4 to 12",
    ),
    "deep index": (with_text(INDEX, DEEP), "cannot be read"),
    "long index": (huge(INDEX), "bytes, and no such file has so many"),
    "index out": (with_text(INDEX, '{"weight_map": {"a": "../../etc/passwd"}}'), "no name that a page can have"),
    "index nul": (with_text(INDEX, '{"weight_map": {"a": "\\u0000\\ud800"}}'), "no name that a page can have"),
    "index names": (with_text(INDEX, json.dumps({"weight_map": {"a": NEWLINE}})), "no name that a page can have"),
    "many shards": (
        with_text(INDEX, json.dumps({"weight_map": {str(at): f"{at}.safetensors" for at in range(3000)}})),
        "names 3000 files",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_page_is_refused(kind: str, checkpoint: Path, fleet: Path) -> None:
    change, said = HOSTILE[kind]
    change(checkpoint)
    code, line = add(checkpoint)
    assert code == 2
    assert said in line
    assert list(fleet.rglob("*.yaml")) == []


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_check_goes_to_its_end(kind: str, checkpoint: Path, fleet: Path) -> None:
    HOSTILE[kind][0](checkpoint)
    found = CliRunner().invoke(main, ["models", "check", "--path", str(checkpoint)])
    assert isinstance(found.exception, SystemExit), repr(found.exception)
    lines = found.stdout.splitlines()
    assert lines and all(line.startswith(f"{checkpoint}: ") and len(line) < 2500 for line in lines)
    assert "\x1b" not in found.output


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "give one"),
        ("~nobody-of-this-name/x", "there is no folder"),
        ("/" + "x" * 4000, "there is no folder"),
        ("x" * 5000, "give one"),
        ("org/Tiny@\n", "give one"),
        ("http://[", "no http address that a page can have"),
        ("http://host:abc/x", "no http address that a page can have"),
        ("https://", "no http address that a page can have"),
        ("http://host/My Model", "no http address that a page can have"),
        ("http://me:p4ss@host/x", "an address with a login"),
        ("http://host/x?token=s3cret", "without what follows"),
    ],
)
def test_a_source_that_is_none(source: str, said: str, fleet: Path) -> None:
    for words in ((source,), ("org/Tiny", f"--mtp-head={source or ' '}")):
        code, line = add(*words)
        assert code == 2
        assert said in line
        assert "p4ss" not in line and "s3cret" not in line


def test_a_name_that_ends_with_a_newline_is_none(checkpoint: Path, fleet: Path) -> None:
    found = CliRunner().invoke(main, ["models", "add", str(checkpoint), "--name", "m\n"])
    assert found.exit_code == 2
    assert "is no name of a model" in found.stderr


def test_a_folder_that_no_page_can_name_is_not_read(checkpoint: Path, fleet: Path) -> None:
    odd = checkpoint.rename(checkpoint.with_name("my model"))
    code, line = add(odd)
    assert (code, "rename the folder" in line) == (2, True)


def test_a_folder_of_everything_is_no_model(checkpoint: Path, fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MOST", 2)
    code, line = add(checkpoint)
    assert (code, "more than 2 files" in line) == (2, True)


@pytest.mark.parametrize("name", ["model.safetensors", INDEX, "tokenizer.json"])
def test_a_pipe_is_not_waited_for(name: str, checkpoint: Path) -> None:
    (checkpoint / name).unlink(missing_ok=True)
    os.mkfifo(checkpoint / name)
    found = model_check.look(str(checkpoint), {}, {})
    told = [problem["cause"] for problem in found["problems"]] + [str(found["tokenizer"])]
    assert any("is no file" in cause for cause in told)


def test_a_shape_beyond_all_bounds_is_damage(tmp_path: Path) -> None:
    with_header(tensor([10**4000, 10**4000]))(tmp_path)
    with pytest.raises(Failure, match="is damaged: tensor a has shape"):
        safetensors.header(str(tmp_path / "model.safetensors"))


ODD: list[Any] = [5, [5, None, {}], {"mtp.fc": {"bits": ["x"]}}, ["re:((("], {"-:(((": {}}, {"g": {"targets": 5}}, None]
KEYS = (*quantization.IGNORED, *quantization.ONLY, "dynamic", "extra_config", "config_groups", "quantized_layers")


@pytest.mark.parametrize("key", KEYS)
def test_quantisation_of_any_form_is_read(key: str) -> None:
    headers = qwen(CONFIG, draft=plain)
    for value in ODD:
        found = facts.facts({**CONFIG, "quantization_config": {"quant_method": "awq", key: value}}, headers)
        assert found.architecture.quantization == "awq"


@pytest.mark.parametrize("key", list(CONFIG["text_config"]))
def test_any_value_of_a_key_is_read_or_refused(key: str) -> None:
    headers = qwen(CONFIG, draft=plain)
    for value in (-1, 0, 10**30, 1.5, float("nan"), "x", "\ud800", [], [1], {}, {"a": 1}, True, None):
        given = copy.deepcopy(CONFIG)
        given["text_config"][key] = value
        try:
            found = facts.facts(given, headers)
        except UnknownFact as error:
            assert "\n" not in error.problems[0]
        else:
            assert found.architecture.layers.count == 2


def test_tensors_larger_than_any_model_are_refused(tmp_path: Path) -> None:
    headers = qwen(CONFIG, draft=plain)
    headers["mtp.fc.weight"]["data_offsets"] = [0, 1 << 62]
    with pytest.raises(UnknownFact, match="which no model has"):
        facts.facts(CONFIG, headers)
    write(tmp_path / "whole.safetensors", qwen(CONFIG))
    assert safetensors.header(str(tmp_path / "whole.safetensors"))
