"""`gpufleet models add`: a page is written, an owner's is kept, and what is wrong is said with its exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gpufleet.cli import main
from gpufleet.models import Model
from gpufleet.schema import read
from tests.unit.checkpoint_server import COMMIT, Site
from tests.unit.checkpoints import laid_out, plain, qwen, write

CONFIG: dict[str, Any] = {
    "model_type": "qwen3_5",
    "text_config": {
        "dtype": "bfloat16",
        "head_dim": 32,
        "hidden_size": 128,
        "intermediate_size": 256,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 32,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 4096,
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "vocab_size": 8192,
    },
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "Tiny-1.5_B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write(folder / "model.safetensors", qwen(CONFIG, draft=plain))
    (folder / "README.md").write_text("hello")
    return folder


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "fleet"
    folder.mkdir()
    (folder / "deploy.py").write_text("")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def site(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with Site() as found:
        found.repos["org/Tiny"] = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        yield found


def add(*words: object) -> Result:
    return CliRunner().invoke(main, ["models", "add", *map(str, words)])


def page(path: Path) -> Model:
    return read(Model, yaml.safe_load(path.read_text()), path.name)


def test_a_page_of_a_folder(checkpoint: Path, fleet: Path) -> None:
    done = add(checkpoint)
    assert done.exit_code == 0, done.output
    assert done.stdout == "files/models/tiny-1.5_b.yaml: written\n"
    made = page(fleet / "files/models/tiny-1.5_b.yaml")
    assert made.source.path == str(checkpoint) and sorted(made.source.files) == ["config.json", "model.safetensors"]
    assert made.source.files["model.safetensors"].size == (checkpoint / "model.safetensors").stat().st_size
    assert made.architecture is not None and made.architecture.mtp is not None
    assert (made.architecture.family, made.architecture.mtp.tensors) == ("qwen3_5", 15)
    assert "reading 2 files" in done.stderr and "dense, 2 layers (1 full_attention, 1 linear_attention)" in done.stderr


def test_a_page_of_the_hub(site: Site, fleet: Path) -> None:
    done = add("org/Tiny", "--name", "mine")
    assert done.exit_code == 0, done.output
    made = page(fleet / "files/models/mine.yaml")
    assert (made.source.hub, made.source.commit, made.revision) == ("org/Tiny", COMMIT, COMMIT[:12])
    assert made.title == "org/Tiny, with MTP"
    assert "hf_secret" not in (fleet / "files/models/mine.yaml").read_text() + done.output


def test_the_mirror_of_the_folder_is_asked(site: Site, fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    (fleet / "group_data").mkdir()
    data = fleet / "group_data" / "all.py"
    data.write_text(f'mirrors = {{"hub": "{site.url}"}}\n')
    done = add("org/Tiny", "--name", "mine")
    assert done.exit_code == 0, done.output
    assert page(fleet / "files/models/mine.yaml").source.hub == "org/Tiny"
    data.write_text("mirrors = {'hob': 1}\n")
    wrong = add("org/Tiny", "--name", "mine")
    assert wrong.exit_code == 2 and "gpufleet: group_data/all.py: unknown key 'mirrors.hob'" in wrong.stderr


def test_printing_writes_nothing(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint)
    done = add(checkpoint, "--print")
    assert done.exit_code == 0
    assert read(Model, yaml.safe_load(done.stdout), "printed").name == "tiny-1.5_b"
    assert sorted(path.name for path in checkpoint.iterdir()) == ["README.md", "config.json", "model.safetensors"]


def test_the_same_again_is_as_it_was(checkpoint: Path, fleet: Path) -> None:
    add(checkpoint)
    done = add(checkpoint)
    assert (done.exit_code, done.stdout) == (0, "files/models/tiny-1.5_b.yaml: as it was\n")


def test_an_owners_page_is_shown_and_kept_without_force(checkpoint: Path, fleet: Path) -> None:
    add(checkpoint, "--name", "t")
    path = fleet / "files/models/t.yaml"
    mine = path.read_text().replace("served_name: t\n", "served_name: t # mine\nargs:\n  max-model-len: 100\n")
    path.write_text(mine)
    assert add(checkpoint, "--name", "t").stdout.endswith("as it was\n")
    (checkpoint / "generation_config.json").write_text("{}")
    refused = add(checkpoint, "--name", "t")
    assert refused.exit_code == 2 and path.read_text() == mine
    assert "+    generation_config.json: {size: 2, sha256:" in refused.stdout
    assert "differs and stays as it is: write over it with --force" in refused.stderr
    forced = add(checkpoint, "--name", "t", "--force")
    assert forced.exit_code == 0
    assert page(path).args == {"max-model-len": 100} and "served_name: t # mine\n" in path.read_text()
    assert "generation_config.json" in page(path).source.files


def test_the_recipe_of_a_page_that_comes_along(checkpoint: Path, fleet: Path) -> None:
    done = add(checkpoint, "--name", "qwen3.8-27b-awq")
    assert done.exit_code == 0, done.output
    made = page(fleet / "files/models/qwen3.8-27b-awq.yaml")
    assert made.args["speculative-config"]["num_speculative_tokens"] == 3 and made.served_name == "medium"
    assert made.source.path == str(checkpoint)
    assert "the recipe is that of " in done.stderr and "qwen3.8-27b-awq.yaml" in done.stderr


def head(folder: Path, name: str = "model-mtp.safetensors") -> Path:
    folder.mkdir(exist_ok=True)
    own = {name: its for name, its in qwen(CONFIG, draft=plain).items() if name.startswith("mtp.")}
    write(folder / name, laid_out((name, its["dtype"], its["shape"]) for name, its in list(own.items())[:9]))
    return folder


def test_another_head_is_in_the_page_and_stays_there(checkpoint: Path, fleet: Path, tmp_path: Path) -> None:
    other = head(tmp_path / "head", "h.safetensors")
    assert add(checkpoint, "--name", "t", "--mtp-head", f"{other}:h.safetensors").exit_code == 0
    made = page(fleet / "files/models/t.yaml")
    assert made.mtp_head is not None and made.mtp_head.file == "h.safetensors"
    assert list(made.mtp_head.source.files) == ["h.safetensors"] and made.mtp_head.source.path == str(other)
    assert made.architecture is not None and made.architecture.mtp is not None and made.architecture.mtp.tensors == 9
    again = add(checkpoint, "--name", "t")
    assert again.stdout == "files/models/t.yaml: as it was\n"


def test_a_head_that_is_none(checkpoint: Path, fleet: Path, tmp_path: Path) -> None:
    missing = add(checkpoint, "--mtp-head", head(tmp_path / "head", "h.safetensors"))
    assert missing.exit_code == 2
    assert (
        "has no model-mtp.safetensors: name the file, --mtp-head SOURCE:FILE; there are h.safetensors" in missing.stderr
    )
    whole = add(checkpoint, "--mtp-head", f"{checkpoint}:model.safetensors")
    assert whole.exit_code == 2 and "model.safetensors is no MTP head: tensor lm_head.weight is in it" in whole.stderr


def test_an_unknown_fact_names_the_key_and_leaves_nothing(checkpoint: Path, fleet: Path) -> None:
    text = {key: value for key, value in CONFIG["text_config"].items() if key != "max_position_embeddings"}
    (checkpoint / "config.json").write_text(json.dumps(CONFIG | {"text_config": text}))
    done = add(checkpoint)
    assert done.exit_code == 2 and not (fleet / "files").exists()
    assert "config.json: text_config has no max_position_embeddings; or write the page without" in done.stderr
    assert add(checkpoint, "--no-architecture").exit_code == 0
    assert page(fleet / "files/models/tiny-1.5_b.yaml").architecture is None


def test_a_file_that_cannot_be_had_is_exit_1(site: Site, fleet: Path) -> None:
    site.statuses[f"/org/Tiny/resolve/{COMMIT}/config.json"] = 403
    done = add("org/Tiny")
    assert done.exit_code == 1 and done.stderr.count("gpufleet: ") == 1 and "give a token" in done.stderr


def test_a_folder_without_pages_is_said_first(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = add(checkpoint)
    assert done.exit_code == 2 and "there is no folder files/models here" in done.stderr
    assert add(checkpoint, "--into", tmp_path / "none").exit_code == 2
    assert add(checkpoint, "--into", tmp_path).exit_code == 0 and (tmp_path / "tiny-1.5_b.yaml").is_file()


@pytest.mark.parametrize("name", ["a b", "../x", "-x", "x" * 101])
def test_a_name_that_is_none(checkpoint: Path, fleet: Path, name: str) -> None:
    done = add(checkpoint, f"--name={name}")
    assert done.exit_code == 2 and "is no name of a model" in done.stderr


def test_a_page_that_was_wrong_before_is_named(checkpoint: Path, fleet: Path) -> None:
    (fleet / "files/models").mkdir(parents=True)
    (fleet / "files/models/t.yaml").write_text("schema: 1\nname: t\nnome: x\n")
    done = add(checkpoint, "--name", "t", "--force")
    assert done.exit_code == 2 and "t.yaml: unknown key 'nome'" in done.stderr
