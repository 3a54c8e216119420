"""`gpufleet adopt`: what it prints, what it writes, and how it ends; the box is stood in for by files."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpufleet.cli import main
from gpufleet.errors import BoxError
from hostkit import model_check
from tests.command import owners_folder
from tests.unit import tiny_checkpoint
from tests.unit.adopted_boxes import SYSTEMD, UNIT, HandMade
from tests.unit.fleets import cpu_facts

INVENTORY = """\
from gpufleet.inventory import by_traits
boxes = [("one", {"ssh_hostname": "192.0.2.1"SERVE}), ("other", {"ssh_hostname": "192.0.2.2"})]
globals().update(by_traits(boxes))
"""
PAGE = "files/models/tiny-model.yaml"


class Boxes:
    """One box; what the kit's verb answers is asked of its files."""

    def __init__(self, box: HandMade) -> None:
        self.box = box
        self.facts: dict[str, Any] = {}
        self.failures: dict[str, BoxError] = {}
        self.asked: list[tuple[str, str]] = []

    def __call__(self, fleet: Any, names: list[str], **more: Any) -> Boxes:
        self.facts = {name: cpu_facts() for name in names if name not in self.failures}
        return self

    def call(self, verb: str, specs: Mapping[str, Any], say: Any = None) -> dict[str, Any]:
        self.asked += [(verb, name) for name in specs]
        return {name: self.box.look() for name in specs}


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "fleet"
    folder.mkdir()
    owners_folder(folder, INVENTORY.replace("SERVE", ""))
    (folder / "files/models").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Boxes:
    """A box whose unit serves a tiny model with three flags."""
    box = HandMade(tmp_path / "box")
    box.unit("vllm.service", UNIT.format(command="/opt/v/bin/vllm serve", more=""))
    words = ["/opt/v/bin/python3", "/opt/v/bin/vllm", "serve", "/srv/Tiny-Model", "--served-model-name", "tiny"]
    words += ["--max-model-len", "512", "--api-key", "a-very-long-secret"]
    box.process(812, words, {**SYSTEMD, "HF_TOKEN": "another-secret"}, "/system.slice/vllm.service", [8000])
    box.runtime("/opt/v", vllm="0.27.1")
    tiny_checkpoint.checkpoint(tmp_path / "box/srv/Tiny-Model")
    stand_in = Boxes(box)
    monkeypatch.setitem(sys.modules, "operations.errands", SimpleNamespace(Boxes=stand_in))  # type: ignore[arg-type]
    monkeypatch.setattr(model_check, "closed", lambda path: [])  # the folder of a test is closed to others
    return stand_in


def adopt(*more: str, box: str = "one") -> Result:
    return CliRunner().invoke(main, ["adopt", "inventory/home.py", box, *more])


def serve_of(output: str) -> list[Any]:
    """The `serve` lines that are to be put into the inventory."""
    lines = output.split("into the data of one:\n")[1].split("`gpufleet plan")[0]
    found: list[Any] = ast.literal_eval(f"{{{lines}}}")["serve"]
    return found


def test_what_is_printed_and_that_nothing_is_written(owner: Path, boxes: Boxes) -> None:
    done = adopt()
    assert done.exit_code == 0, done.output
    assert boxes.asked == [("adoptable", "one")]
    assert done.stdout.startswith("vllm.service: vLLM 0.27.1, user ai, pid 812, port 8000, starts at boot, ")
    assert serve_of(done.stdout) == [
        {
            "model": "tiny-model",
            "port": 8000,
            "replaces": ["vllm.service"],
            "args": {"served-model-name": "tiny", "max-model-len": 512},
        }
    ]
    assert "`gpufleet adopt inventory/home.py one --write` writes them:\n  files/models/tiny-model.yaml" in done.stdout
    assert "secret" not in done.stdout.replace("a secret has no place", "")
    assert list((owner / "files/models").iterdir()) == []


def test_facts_of_a_new_box_are_kept_for_the_plan_and_others_stay(owner: Path, boxes: Boxes) -> None:
    assert adopt().exit_code == 0
    kept = owner / "inventory/facts/home/one.json"
    assert json.loads(kept.read_text())["hostname"] == "box"
    kept.write_text(kept.read_text().replace('"cores": 8', '"cores": 4'))
    assert adopt().exit_code == 0 and '"cores": 4' in kept.read_text()


def test_what_it_writes_and_prints_is_a_fleet_that_plans_so(owner: Path, boxes: Boxes) -> None:
    done = adopt("--write")
    assert done.exit_code == 0, done.output
    assert "first the pages" not in done.stdout and (owner / PAGE).is_file()
    assert adopt("--write").exit_code == 0
    (entry,) = serve_of(done.stdout)
    (owner / "inventory/home.py").write_text(INVENTORY.replace("SERVE", f', "serve": [{entry!r}]'))
    again = adopt("--json")
    assert again.exit_code == 0, again.output
    (service,) = json.loads(again.stdout)["services"]
    assert not service["adopted"] and "the inventory has it" in service["why"]


def test_a_page_that_differs_is_shown_and_stays(owner: Path, boxes: Boxes) -> None:
    assert adopt("--write").exit_code == 0
    text = (owner / PAGE).read_text()
    (owner / PAGE).write_text(text.replace("revision: local", "revision: mine").replace("/srv/", "/other/"))
    kept = (owner / PAGE).read_text()
    done = adopt("--write")
    assert done.exit_code == 2 and "--force" in done.stderr and (owner / PAGE).read_text() == kept
    assert adopt("--write", "--force").exit_code == 0
    assert "path: /srv/Tiny-Model" in (owner / PAGE).read_text()


def test_the_document(owner: Path, boxes: Boxes) -> None:
    found = json.loads(adopt("--json").stdout)
    assert set(found) == {"schema", "box", "services", "idle", "findings"} and found["box"] == "one"
    (service,) = found["services"]
    assert service["entry"]["replaces"] == ["vllm.service"] and service["model"]["page"].startswith("schema: 1")
    assert {item["kind"] for item in service["items"]} >= {"entry", "changed", "left", "added"}


def test_a_model_that_is_not_whole_is_told_and_gets_no_page(owner: Path, boxes: Boxes) -> None:
    shard = next((boxes.box.root / "srv/Tiny-Model").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])
    done = adopt("--write")
    assert done.exit_code == 1
    assert "is truncated" in done.stdout and "no page is written before that is put right" in done.stdout
    assert not (owner / PAGE).exists()


def test_a_box_that_serves_nothing(owner: Path, boxes: Boxes, tmp_path: Path) -> None:
    boxes.box = HandMade(tmp_path / "bare")
    done = adopt()
    assert (done.exit_code, done.stdout) == (0, "one: nothing serves a language model there\n")


def test_a_unit_that_does_not_run_is_named(owner: Path, boxes: Boxes, tmp_path: Path) -> None:
    boxes.box = HandMade(tmp_path / "idle")
    boxes.box.write("/etc/systemd/system/own.service", "[Service]\nExecStart=/x/vllm serve /m\n")
    done = adopt()
    assert done.exit_code == 0
    assert "own.service (/etc/systemd/system/own.service) starts vLLM and does not run: start it" in done.stdout


def test_a_unit_whose_place_an_instance_has_is_not_to_be_started(owner: Path, boxes: Boxes, tmp_path: Path) -> None:
    boxes.box = HandMade(tmp_path / "taken")
    boxes.box.write("/etc/systemd/system/own.service", "[Service]\nExecStart=/x/vllm serve /m\n")
    entry = {"model": "qwen3-0.6b", "replaces": ["own.service"]}
    (owner / "inventory/home.py").write_text(INVENTORY.replace("SERVE", f', "serve": [{entry!r}]'))
    done = adopt()
    assert done.exit_code == 0 and "own.service" not in done.stdout, done.output


def test_a_box_that_cannot_be_looked_at(owner: Path, boxes: Boxes) -> None:
    boxes.failures["one"] = BoxError("one", "it does not answer", "see whether it is on")
    done = adopt()
    assert done.exit_code == 1 and "one: it does not answer" in done.stderr and boxes.asked == []


@pytest.mark.parametrize(
    ("box", "said"), [("oen", "did you mean 'one'"), ("fleet", "is a group"), ("nobody", "there is no box 'nobody'")]
)
def test_a_call_that_names_no_box(owner: Path, boxes: Boxes, box: str, said: str) -> None:
    done = adopt(box=box)
    assert done.exit_code == 2 and said in done.stderr
