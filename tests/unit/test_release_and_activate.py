"""Releases and their activation on a box: staged whole, switched by a link, restarted only when something changed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hostkit import activate, release, resume_unit, state, switch, systemd
from hostkit.errors import Failure
from tests.unit.boxes import FakeBox


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBox:
    return FakeBox(tmp_path, monkeypatch)


def files_of(text: str) -> tuple[str, dict[str, str]]:
    made = {"serve.yaml": text, "gpufleet-tiny.service": "[Unit]\n"}
    digests = {name: hashlib.sha256(content.encode()).hexdigest() for name, content in made.items()}
    manifest = json.dumps({"schema": 1, "files": digests})
    return hashlib.sha256(manifest.encode()).hexdigest()[:16], {**made, "manifest.json": manifest}


def stage(text: str = "a: 1\n") -> tuple[str, dict[str, Any]]:
    digest, files = files_of(text)
    return digest, release.run({"instance": "tiny", "digest": digest, "files": files})


def start(box: FakeBox, digest: str, leaving: list[str] | None = None) -> dict[str, Any]:
    box.asked.clear()
    spec = {"instance": "tiny", "digest": digest, "port": 8000, "gate": {}, "instead_of": leaving or []}
    return activate.run({**spec, **box.complete()})


def linked(target: str) -> tuple[str, dict[str, str]]:
    manifest = json.dumps({"schema": 1, "files": {}, "links": {"model": target, "runtime": "/opt/gpufleet/runtimes/a"}})
    return hashlib.sha256(manifest.encode()).hexdigest()[:16], {"manifest.json": manifest}


def test_only_root_reads_an_environment(box: FakeBox) -> None:
    wanted = {"serve.env": 'HF_TOKEN="hf_x"\n', "manifest.json": '{"files": {}}'}
    digest = hashlib.sha256(wanted["manifest.json"].encode()).hexdigest()[:16]
    folder = box.root / "instances/tiny/releases" / digest
    for _ in ("staged", "put right"):
        release.run({"instance": "tiny", "digest": digest, "files": wanted})
        assert [(folder / name).stat().st_mode & 0o777 for name in sorted(wanted)] == [0o644, 0o600]
        (folder / "serve.env").write_text("")


def test_links_are_part_of_a_release_and_made_again_without_a_restart(box: FakeBox) -> None:
    digest, made = linked("/opt/gpufleet/models/tiny/r1")
    spec = {"instance": "tiny", "digest": digest, "files": made}
    assert release.run(spec) == {"staged": True, "repaired": []}
    folder = box.root / "instances/tiny/releases" / digest
    assert os.readlink(folder / "model") == "/opt/gpufleet/models/tiny/r1"
    (folder / "model").unlink()
    (folder / "model").symlink_to("/elsewhere")
    (folder / "runtime").unlink()
    assert release.run(spec) == {"staged": False, "repaired": ["model", "runtime"]}
    assert os.readlink(folder / "model") == "/opt/gpufleet/models/tiny/r1"
    assert release.run(spec) == {"staged": False, "repaired": []}
    assert not state.instance("tiny").get("stale")
    assert linked("/opt/gpufleet/models/tiny/r2")[0] != digest


def test_a_directory_in_the_place_of_a_link_is_not_thrown_away(box: FakeBox) -> None:
    digest, made = linked("/opt/gpufleet/models/tiny/r1")
    spec = {"instance": "tiny", "digest": digest, "files": made}
    release.run(spec)
    folder = box.root / "instances/tiny/releases" / digest
    (folder / "model").unlink()
    (folder / "model").mkdir()
    with pytest.raises(Failure, match="is a directory where a link should be"):
        release.run(spec)


def test_staging_twice_changes_nothing(box: FakeBox) -> None:
    assert stage()[1] == {"staged": True, "repaired": []}
    assert stage()[1] == {"staged": False, "repaired": []}


def test_a_release_that_is_not_its_digest_is_refused(box: FakeBox) -> None:
    with pytest.raises(Failure, match="does not match"):
        release.run({"instance": "tiny", "digest": "0" * 16, "files": files_of("x")[1]})
    assert not (box.root / "instances").exists()


def test_an_edited_file_is_put_right_and_the_service_restarted(box: FakeBox) -> None:
    digest, _ = stage()
    assert start(box, digest)["restarted"]
    (box.root / "instances/tiny/releases" / digest / "serve.yaml").write_text("a: 2\n")
    assert stage()[1] == {"staged": False, "repaired": ["serve.yaml"]}
    assert state.instance("tiny")["stale"]
    assert start(box, digest)["restarted"]
    assert not state.instance("tiny")["stale"]


def test_the_same_release_again_is_not_restarted(box: FakeBox) -> None:
    digest, _ = stage()
    start(box, digest)
    assert not start(box, digest)["restarted"]
    assert "restart" not in box.asked


@pytest.mark.parametrize("link", ["instances/tiny/current", "units/gpufleet-tiny.service"])
def test_a_lost_link_is_made_again_without_a_restart(box: FakeBox, link: str) -> None:
    digest, _ = stage()
    start(box, digest)
    (box.root / link).unlink()
    assert not start(box, digest)["restarted"]
    assert (box.root / link).resolve().exists()


def test_a_stopped_service_is_started(box: FakeBox) -> None:
    digest, _ = stage()
    start(box, digest)
    box.active = "inactive"
    assert start(box, digest)["restarted"]


def test_a_failed_gate_puts_the_previous_release_back(box: FakeBox) -> None:
    good, _ = stage("a: 1\n")
    start(box, good)
    bad, _ = stage("a: 2\n")
    box.gate_fails.add(bad)
    with pytest.raises(Failure) as caught:
        start(box, bad)
    assert f"release {good} serves again" in caught.value.remedy
    assert (box.current("tiny"), box.active, state.instance("tiny")["gated"]) == (good, "active", good)
    lines = [json.loads(line) for line in (box.root / "state/journal.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines if line["event"] != "activation"] == [
        "activated",
        "gate-failed",
        "put-back",
    ]
    steps = [line["step"] for line in lines if line["event"] == "activation" and line["digest"] == bad]
    assert steps == ["staged", "warming", "checking", "stopping", "switching", "starting", "gating",
                     "putting-back", "gating-back"]  # fmt: skip


def test_a_failed_gate_without_a_previous_release_leaves_nothing_current(box: FakeBox) -> None:
    bad, _ = stage()
    box.gate_fails.add(bad)
    with pytest.raises(Failure, match="the answer is wrong"):
        start(box, bad)
    assert (box.current("tiny"), box.active) == (None, "inactive")
    assert [path.name for path in (box.root / "units").iterdir()] == [resume_unit.NAME]


def test_a_gate_that_fails_on_what_serves_already_takes_nothing_down(box: FakeBox) -> None:
    digest, _ = stage()
    start(box, digest)
    (box.root / "instances/tiny/current").unlink()
    box.gate_fails.add(digest)
    with pytest.raises(Failure) as caught:
        start(box, digest)
    assert "left as it is" in caught.value.remedy
    assert (box.current("tiny"), box.active) == (digest, "active")
    assert "stop" not in box.asked and state.instance("tiny")["stale"]
    assert state.instance("tiny")["gated"] == digest and not state.instance("tiny")["activation"]


def test_whatever_goes_wrong_in_a_switch_is_put_back(box: FakeBox, monkeypatch: pytest.MonkeyPatch) -> None:
    good, _ = stage("a: 1\n")
    start(box, good)
    bad, _ = stage("a: 2\n")
    failing = [Failure("systemctl daemon-reload failed", "look at it")]
    reload = systemd.reload
    monkeypatch.setattr(systemd, "reload", lambda: (_ for _ in ()).throw(failing.pop()) if failing else reload())
    with pytest.raises(Failure, match="daemon-reload failed"):
        start(box, bad)
    assert (box.current("tiny"), box.active) == (good, "active")


def test_a_unit_of_another_making_is_replaced_and_restarted(box: FakeBox) -> None:
    digest, _ = stage()
    start(box, digest)
    unit = box.root / "units/gpufleet-tiny.service"
    unit.write_text("[Service]\n")
    assert start(box, digest)["restarted"]
    assert unit.read_text() == "[Unit]\n"


def test_a_full_disk_keeps_nobody_from_putting_back(box: FakeBox, monkeypatch: pytest.MonkeyPatch) -> None:
    good, _ = stage("a: 1\n")
    start(box, good)
    bad, _ = stage("a: 2\n")
    box.gate_fails.add(bad)
    update = state.update

    def full(name: str, **fields: Any) -> None:
        if box.current("tiny") == good and fields.get("stale") is False:
            raise OSError(28, "No space left on device")
        update(name, **fields)

    monkeypatch.setattr(state, "update", full)
    with pytest.raises(Failure, match="the answer is wrong") as caught:
        start(box, bad)
    assert (box.current("tiny"), box.active) == (good, "active")
    assert "No space left" in caught.value.remedy


def test_what_is_put_there_anew_makes_its_instances_start_again(box: FakeBox) -> None:
    digest, _ = stage()
    start(box, digest)
    state.doubt(["tiny", "unknown"])
    assert "unknown" not in state.load()["instances"]
    assert start(box, digest)["restarted"]


def test_nothing_is_switched_while_the_runtime_is_not_complete(box: FakeBox) -> None:
    digest, _ = stage()
    needed = box.complete()
    (Path(needed["runtime"]) / ".gpufleet-complete").unlink()
    with pytest.raises(Failure, match="is not complete"):
        activate.run({"instance": "tiny", "digest": digest, "port": 8000, "gate": {}, "instead_of": [], **needed})
    assert box.current("tiny") is None


def test_a_port_of_another_program_is_not_fought_over(box: FakeBox) -> None:
    digest, _ = stage()
    box.ports = {"8000": {"pid": 5, "command": "nginx", "unit": "nginx.service"}}
    with pytest.raises(Failure, match="port 8000 is taken by nginx"):
        start(box, digest)
    assert box.current("tiny") is None


def test_an_instance_that_leaves_goes_when_its_successor_serves(box: FakeBox) -> None:
    digest, _ = stage()
    (box.root / "instances/old").mkdir(parents=True)
    (box.root / "instances/old/current").symlink_to("releases/x")
    (box.root / "units/gpufleet-old.service").write_text("[Unit]\n")
    box.ports = {"8000": {"pid": 5, "command": "vllm", "unit": "gpufleet-old.service"}}
    box.gate_fails.add(digest)
    with pytest.raises(Failure) as caught:
        start(box, digest, ["old"])
    assert "gpufleet-old.service runs again" in caught.value.remedy
    assert (box.root / "instances/old/current").is_symlink()
    box.gate_fails.clear()
    start(box, digest, ["old"])
    assert not (box.root / "instances/old/current").is_symlink()
    assert not (box.root / "units/gpufleet-old.service").exists()


def test_old_releases_go_and_the_last_ones_stay(box: FakeBox) -> None:
    digests = []
    for number in range(5):
        digests.append(stage(f"a: {number}\n")[0])
        start(box, digests[-1])
    left = {path.name for path in (box.root / "instances/tiny/releases").iterdir()}
    assert digests[-1] in left and digests[-2] in left and len(left) == switch.KEEP


def test_a_torn_journal_line_does_not_spoil_the_next(box: FakeBox) -> None:
    (box.root / "state").mkdir()
    (box.root / "state/journal.jsonl").write_text('{"event": "torn')
    state.journal("next")
    assert json.loads((box.root / "state/journal.jsonl").read_text().splitlines()[1])["event"] == "next"


def test_a_damaged_state_counts_as_none(box: FakeBox) -> None:
    (box.root / "state").mkdir()
    (box.root / "state/state.json").write_text('{"inst')
    assert state.instance("tiny") == {}
    state.update("tiny", gated="x")
    assert state.instance("tiny") == {"gated": "x"}
