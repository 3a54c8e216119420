"""`gpufleet bundle`: what is asked of the box, what is in the file, and how it ends."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gpufleet.errors import BoxError
from tests.operations.fleet_of_two import NEW, Boxes, boxes, gpufleet
from tests.unit.planted import Planted

__all__ = ["boxes"]

LOG = Planted(21)
HEALTH = {"ok": True, "status": 200, "seconds": 0.004, "said": ""}


def evidence(box: str, spec: dict[str, Any], say: Any) -> dict[str, Any]:
    return {
        "identity": LOG.identity(),
        "state": {"schema": 1, "instances": {"qwen": {"gated": NEW}}},
        "events": [{"at": "2026-11-29T12:30:00Z", "event": "activated", "instance": "qwen", "tokens_per_second": 41.5}],
        "logs": {name: LOG.lines() for name in spec["instances"]},
        "argv": {"qwen": ["vllm", "serve", "--api-key", LOG.password]},
        "packages": {},
        "cmdline": "quiet",
        "errors": [],
    }


@pytest.fixture
def answering(boxes: Boxes) -> Boxes:
    boxes.answers["evidence"] = evidence
    boxes.answers["health"] = {"instances": {"qwen": {"health": HEALTH}, "ornith": {"health": HEALTH}}}
    return boxes


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for member in archive.getmembers():
            handle = archive.extractfile(member)
            assert handle
            found[member.name.removeprefix("bundle/")] = handle.read().decode()
        return found


def test_a_bundle_of_a_box_that_answers(answering: Boxes) -> None:
    reports = Path("inventory/reports/home")
    reports.mkdir(parents=True)
    (reports / "20261129T120000Z-aaaa.json").write_text(json.dumps({"end": "failed", "boxes": {"one": {}}}))
    (reports / "20261129T130000Z-bbbb.json").write_text(json.dumps({"end": "done", "boxes": {"second": {}}}))
    done = gpufleet("bundle", "one", "-o", "x.tar.gz", "-n", "7")
    assert done.exit_code == 0, done.output
    files = unpacked(Path("x.tar.gz"))
    pages = {"README.txt", "versions.json", "facts.json", "plan.json", "plan.txt", "settings.json", "status.json"}
    pages |= {"state.json", "journal.jsonl", "gates.json", "processes.json", "report.json"}
    assert set(files) == pages | {"logs/qwen.txt", "logs/ornith.txt"}
    assert all(name in done.output for name in files) and "nothing was sent anywhere" in done.output
    asked = {verb: spec for verb, _, spec in answering.called}
    assert asked["evidence"] == {"instances": ["ornith", "qwen"], "events": 500, "log": 7}
    assert json.loads(files["report.json"])["end"] == "failed"
    assert json.loads(files["gates.json"])["gates"][0]["tokens_per_second"] == 41.5
    assert json.loads(files["versions.json"])["controller"]["kit"].startswith("gpufleet-kit-")
    data = "\n".join(files.values()).lower()
    assert [kind for kind, value in LOG.all().items() if value.lower() in data] == []
    assert "192.0.2.3" not in data


def test_without_a_name_it_is_put_where_the_caller_is(answering: Boxes, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from gpufleet.cli import main

    folder = Path.cwd()
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    done = CliRunner().invoke(main, ["bundle", "../inventory/home.py", "second"])
    assert done.exit_code == 0, done.output
    (made,) = os.listdir(folder / "elsewhere")
    assert made.startswith("gpufleet-bundle-2") and made.endswith("Z.tar.gz")
    assert "not in it: report: there is none" in done.output


def test_of_a_box_that_cannot_be_reached_there_is_what_was_known(answering: Boxes) -> None:
    answering.failures["one"] = BoxError("one", "no route to 192.0.2.3", "check that it is on")
    done = gpufleet("bundle", "one", "-o", "x.tar.gz")
    assert done.exit_code == 1
    files = unpacked(Path("x.tar.gz"))
    assert set(files) == {"README.txt", "versions.json"}
    assert "box-1: no route to address-1. Check that it is on." in files["README.txt"]
    assert "not in it: one: no route" in done.output and "the box was never looked at" in done.output


def test_a_box_that_fails_in_the_middle_leaves_the_rest(answering: Boxes) -> None:
    def failing(box: str, spec: dict[str, Any], say: Any) -> dict[str, Any]:
        raise BoxError(box, "the connection broke off", "deploy again")

    answering.answers["evidence"] = failing
    assert gpufleet("bundle", "one", "-o", "x.tar.gz").exit_code == 1
    assert {"facts.json", "plan.json", "status.json"} <= set(unpacked(Path("x.tar.gz")))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nobody",), "there is no box 'nobody' in the inventory"),
        (("fleet",), "'fleet' is a group; this is done on one box: name it"),
        (("one/qwen",), "'one/qwen': this is done on a whole box; write one"),
        (("one", "-o", "deploy.py"), "is there already: give another name"),
        (("one", "-o", "nowhere/x.tar.gz"), "give a file in a folder that can be written"),
    ],
)
def test_what_is_wrong_with_the_call(answering: Boxes, arguments: tuple[str, ...], said: str) -> None:
    done = gpufleet("bundle", *arguments)
    assert done.exit_code == 2 and said in done.output
    assert not list(Path.cwd().rglob("*.part"))


def test_a_name_that_could_not_be_taken_out_stops_it(answering: Boxes, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpufleet.anonymity_text import Disguise

    monkeypatch.setattr(Disguise, "text", lambda self, text: text)
    done = gpufleet("bundle", "one", "-o", "x.tar.gz")
    assert done.exit_code == 1 and "nothing was written" in done.output and LOG.user not in done.output
    assert not Path("x.tar.gz").exists()


def test_the_file_is_a_tar_that_any_program_reads(answering: Boxes) -> None:
    assert gpufleet("bundle", "one", "-o", "x.tar.gz").exit_code == 0
    with tarfile.open(fileobj=io.BytesIO(Path("x.tar.gz").read_bytes()), mode="r:gz") as archive:
        assert all(member.isfile() and member.name.startswith("bundle/") for member in archive)
