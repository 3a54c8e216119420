"""`gpufleet models check`: in a folder, in the controller's store, on boxes that are stood in for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gpufleet.checkpoint.facts import facts as read
from gpufleet.cli import main
from gpufleet.errors import BoxError
from gpufleet.wheelhouse.items import Item, Made
from gpufleet.wheelhouse.store import Store
from hostkit import model_check, safetensors
from tests.command import owners_folder
from tests.unit.fleets import cpu_facts
from tests.unit.tiny_checkpoint import SHARDS, checkpoint, pins

FIRST = next(iter(SHARDS))
INVENTORY = """\
from gpufleet.inventory import by_traits
boxes = [(name, {"ssh_hostname": f"192.0.2.{len(name)}", "serve": ["mine"]}) for name in ("one", "second")]
globals().update(by_traits(boxes))
"""


def page(folder: Path, **changes: Any) -> dict[str, Any]:
    """A page of `mine`, with the files of a checkpoint."""
    return {
        "schema": 1,
        "name": "mine",
        "title": "a model",
        "revision": "r1",
        "source": {"http": "http://192.0.2.9/mine/", "files": pins(folder)},
        "served_name": "mine",
        "aliases": ["ours"],
        **changes,
    }


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An owner's folder with a page of `mine`, whose checkpoint lies in `checkpoint`."""
    checkpoint(tmp_path / "checkpoint")
    owners_folder(tmp_path, INVENTORY)
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUFLEET_STORE", str(tmp_path / "store"))
    return tmp_path


def write(root: Path, **changes: Any) -> None:
    at = root / "files" / "models" / "mine.yaml"
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(yaml.safe_dump(page(root / "checkpoint", **changes)), encoding="utf-8")


def check(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["models", "check", *arguments])


# In a folder.


def test_a_folder_that_no_page_is_about(owner: Path) -> None:
    done = check("--path", "checkpoint")
    assert done.exit_code == 0, done.output
    assert done.stdout == "checkpoint: in order: 7 files, 0.0 GB; there are no hashes to compare with.\n"


def test_a_folder_against_a_page(owner: Path) -> None:
    done = check("mine", "--path", "checkpoint", "--deep")
    assert (done.exit_code, done.stdout) == (
        0,
        "checkpoint: mine: in order: 7 files, 0.0 GB, as pinned to the last byte.\n",
    )
    (owner / "checkpoint" / FIRST).write_bytes(b"12345678")
    done = check("mine", "--path", "checkpoint")
    assert done.exit_code == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"checkpoint: mine: error: {FIRST} has 8 bytes, ") and line.endswith(" Fetch it again.")


def test_what_is_said_is_json_too(owner: Path) -> None:
    (owner / "checkpoint" / "chat_template.jinja").write_text("{{ oh")
    done = check("--path", "checkpoint", "--json")
    assert done.exit_code == 1
    (found,) = json.loads(done.stdout)["models"]
    assert (found["where"], found["model"], found["right"]) == ("checkpoint", None, False)
    assert {problem["file"] for problem in found["problems"]} == {"chat_template.jinja"}
    assert found["tensors"] == 6


# In the store.


def stored(owner: Path) -> Store:
    store = Store(owner / "store")
    for name, file in pins(owner / "checkpoint").items():
        at = store.path(Item(name, file["sha256"], file["size"], Made()))
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes((owner / "checkpoint" / name).read_bytes())
    return store


def test_the_copy_of_the_store(owner: Path) -> None:
    store = stored(owner)
    for names in (["mine"], []):
        done = check(*names, "--deep")
        assert done.exit_code == 0, done.output
        assert done.stdout == "the controller: mine: in order: 7 files, 0.0 GB, as pinned to the last byte.\n"
    file = pins(owner / "checkpoint")[FIRST]
    store.path(Item(FIRST, file["sha256"], file["size"], Made())).unlink()
    done = check("mine")
    assert done.exit_code == 1
    assert (
        f"the controller: mine: error: {FIRST} is missing (No such file or directory). "
        "Run `gpufleet fetch --model mine`." in done.stdout
    )


def test_files_with_the_same_bytes_are_once_in_the_store(owner: Path) -> None:
    (owner / "checkpoint" / "a.txt").write_text("the same")
    (owner / "checkpoint" / "b.txt").write_text("the same")
    write(owner)
    store = stored(owner)
    file = pins(owner / "checkpoint")["b.txt"]
    store.path(Item("b.txt", file["sha256"], file["size"], Made())).unlink()
    done = check("mine", "--deep")
    assert done.exit_code == 0, done.output


def test_a_head_that_is_to_be_replaced_is_not_held_against_the_store(owner: Path) -> None:
    stored(owner)
    head = {"source": {"path": "/srv/head"}, "file": "model-mtp.safetensors"}
    shape = read(json.loads((owner / "checkpoint" / "config.json").read_text()), headers(owner)).architecture
    other = shape.model_dump(exclude_none=True) | {"mtp": {"mib": 3, "tensors": 3}}
    write(owner, mtp_head=head, architecture=other)
    for place in ([], ["--path", "checkpoint"]):
        done = check("mine", *place)
        assert done.exit_code == 0, done.output
    write(owner, architecture=other)
    assert "architecture.mtp.tensors is 3, there are 2" in check("mine").stdout


def headers(owner: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in SHARDS:
        found |= safetensors.header(str(owner / "checkpoint" / name))
    return found


# On boxes.


def print_nothing(line: str) -> None:
    """The kit's own lines go to the controller as events."""


class Boxes:
    """Two boxes; what `model_check` answers is asked of a folder of this machine."""

    def __init__(self, look: Callable[[str, dict[str, Any]], Any]) -> None:
        self.look = look
        self.facts: dict[str, Any] = {}
        self.failures: dict[str, BoxError] = {}
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def __call__(self, fleet: Any, names: list[str]) -> Boxes:
        self.facts = {name: cpu_facts() for name in names if name not in self.failures}
        return self

    def call(self, verb: str, specs: Mapping[str, Any], say: Any = None) -> dict[str, Any]:
        self.asked += [(verb, name, dict(spec)) for name, spec in specs.items()]
        return {name: self.look(name, dict(spec)) for name, spec in specs.items() if name not in self.failures}


@pytest.fixture
def boxes(owner: Path, monkeypatch: pytest.MonkeyPatch) -> Boxes:
    def look(box: str, spec: dict[str, Any]) -> dict[str, Any]:
        found = model_check.look(
            str(owner / "checkpoint"), spec["files"], {}, spec["head"], spec["deep"], print_nothing
        )
        return {**found, "path": "/opt/gpufleet/models/mine/r1", "doubted": bool(found["damaged"])}

    stand_in = Boxes(look)
    monkeypatch.setitem(sys.modules, "operations.errands", SimpleNamespace(Boxes=stand_in))  # type: ignore[arg-type]
    return stand_in


def test_every_box_that_serves_it_is_asked(owner: Path, boxes: Boxes) -> None:
    done = check("--inventory", "inventory/home.py")
    assert done.exit_code == 0, done.output
    assert [(verb, name) for verb, name, _ in boxes.asked] == [("model_check", "one"), ("model_check", "second")]
    spec = boxes.asked[0][2]
    assert (spec["name"], spec["directory"], spec["deep"], spec["head"]) == ("mine", "r1", False, None)
    assert spec["files"] == pins(owner / "checkpoint")
    assert done.stdout.splitlines() == [
        f"{name}: mine: in order: 7 files, 0.0 GB; --deep compares every byte." for name in ("one", "second")
    ]


def test_pieces_that_the_controller_keeps_go_along_when_all_is_read(
    owner: Path, boxes: Boxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "pieces", lambda _, item: ["0" * 64] if item.filename == FIRST else None)
    assert check("--inventory", "inventory/home.py", "--deep", "--limit", "one").exit_code == 0
    assert boxes.asked[-1][2]["pieces"] == {FIRST: ["0" * 64]}
    check("--inventory", "inventory/home.py", "--limit", "one")
    assert boxes.asked[-1][2]["pieces"] == {}


def test_a_damaged_file_is_said_with_what_becomes_of_it(owner: Path, boxes: Boxes) -> None:
    wanted = pins(owner / "checkpoint")
    write(owner)
    data = bytearray((owner / "checkpoint" / FIRST).read_bytes())
    data[-1] ^= 1
    (owner / "checkpoint" / FIRST).write_bytes(data)
    assert check("--inventory", "inventory/home.py").exit_code == 0  # the bytes are not read
    done = check("mine", "--inventory", "inventory/home.py", "--deep", "--limit", "one")
    assert done.exit_code == 1
    first, second = done.stdout.splitlines()
    assert (
        first.startswith(f"one: mine: error: {FIRST} is damaged: its sha256 is ") and wanted[FIRST]["sha256"] in first
    )
    assert second == "one: mine: the next deploy looks at each of its files, and mends what is wrong."


def test_flags_of_the_plan_are_held_against_the_files(owner: Path, boxes: Boxes) -> None:
    write(owner, args={"quantization": "compressed-tensors"})
    done = check("--inventory", "inventory/home.py", "--limit", "one")
    assert done.exit_code == 1
    assert "one: mine: error: mine: quantization is compressed-tensors, the checkpoint is awq" in done.stdout


def test_names_that_clients_use(owner: Path, boxes: Boxes) -> None:
    (owner / "group_data").mkdir()
    (owner / "group_data" / "all.py").write_text('serve_args = {"served-model-name": "mine"}\n', encoding="utf-8")
    done = check("--inventory", "inventory/home.py", "--limit", "one")
    assert done.exit_code == 1
    assert "it answers to mine; clients that ask for ours get 404" in done.stdout


def test_a_box_that_fails_costs_itself(owner: Path, boxes: Boxes) -> None:
    boxes.failures["second"] = BoxError("second", "it does not answer", "look at it")
    done = check("--inventory", "inventory/home.py")
    assert done.exit_code == 1
    assert "one: mine: in order" in done.stdout
    assert "second: it does not answer. Look at it." in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--path", "x", "--inventory", "y"], "not both"),
        (["--limit", "one"], "--limit is for an inventory"),
        (["--path", "nowhere"], "there is no folder nowhere"),
        (["mine", "qwen3-0.6b", "--path", "checkpoint"], "name one MODEL"),
        (["nothing", "--path", "checkpoint"], "unknown model 'nothing'"),
        (["nothing", "--inventory", "inventory/home.py"], "unknown model 'nothing'"),
        (["qwen3-0.6b", "--inventory", "inventory/home.py"], "no box serves qwen3-0.6b"),
        (["qwen3-0.6b"], "it lies on boxes, not in the store"),
    ],
)
def test_wrong_calls_end_with_2(owner: Path, boxes: Boxes, arguments: list[str], said: str) -> None:
    done = check(*arguments)
    assert done.exit_code == 2, done.output
    assert said in done.output
