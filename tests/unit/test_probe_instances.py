"""Releases, their drift, and the services of the instances."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hostkit import probe, releases, services
from hostkit.roots import Roots

UNIT = "gpufleet-qwen.service"


def make_release(home: Path, files: dict[str, str], links: dict[str, str] | None = None) -> str:
    hashes = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}
    manifest = json.dumps({"schema": 1, "files": hashes, **({"links": links} if links else {})})
    digest = hashlib.sha256(manifest.encode()).hexdigest()[:16]
    release = home / "releases" / digest
    for path, text in files.items():
        (release / path).parent.mkdir(parents=True, exist_ok=True)
        (release / path).write_text(text)
    (release / "manifest.json").write_text(manifest)
    for name, target in (links or {}).items():
        (release / name).symlink_to(target)
    return digest


class Box:
    def __init__(self, base: Path) -> None:
        self.roots = Roots(str(base))
        self.home = base / "opt/gpufleet/instances/qwen"
        self.older = make_release(self.home, {UNIT: "[Service]\n"})
        self.digest = make_release(self.home, {UNIT: "[Service]\nExecStart=/x\n", "env/qwen.env": "A=1\n"})
        self.release = self.home / "releases" / self.digest
        self.current = self.home / "current"
        self.current.symlink_to(f"releases/{self.digest}")
        self.unit = base / "etc/systemd/system" / UNIT
        self.unit.parent.mkdir(parents=True)
        self.unit.write_text("[Service]\nExecStart=/x\n")

    def read(self) -> dict[str, object]:
        instance: dict[str, object] = releases.read_instances(self.roots)["instances"]["qwen"]
        return instance


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_an_instance_as_it_was_activated(box: Box) -> None:
    (box.home / "releases/.building").mkdir()
    assert box.read() == {
        "current": box.digest,
        "releases": sorted([box.older, box.digest]),
        "drift": [],
        "gpus": [],
        "gated": None,
        "stale": False,
        "port": None,
        "activation": None,
        "held": None,
        "history": [],
        "replaced": {},
    }


def test_files_changed_and_lost(box: Box) -> None:
    (box.release / "env/qwen.env").write_text("A=2\n")
    (box.release / UNIT).unlink()
    unit = f"/etc/systemd/system/{UNIT}"
    assert box.read()["drift"] == ["env/qwen.env: modified", f"{UNIT}: missing", f"{unit}: modified"]


def test_links_lost_and_moved(box: Box) -> None:
    links = {"model": "/opt/gpufleet/models/tiny/r1", "runtime": "/opt/gpufleet/runtimes/a"}
    digest = make_release(box.home, {UNIT: "[Service]\nExecStart=/x\n"}, links)
    box.current.unlink()
    box.current.symlink_to(f"releases/{digest}")
    release = box.home / "releases" / digest
    assert box.read()["drift"] == []
    (release / "model").unlink()
    (release / "runtime").unlink()
    (release / "runtime").symlink_to("/opt/gpufleet/runtimes/b")
    assert box.read()["drift"] == ["model: missing", "runtime: modified"]
    (release / "runtime").unlink()
    (release / "runtime").write_text("/opt/gpufleet/runtimes/a")
    assert box.read()["drift"] == ["model: missing", "runtime: modified"]


def test_a_manifest_that_is_not_the_one_the_release_is_named_by(box: Box) -> None:
    (box.release / "manifest.json").write_text("not even JSON")
    assert box.read()["drift"] == ["manifest.json: modified"]
    (box.release / "manifest.json").unlink()
    assert box.read()["drift"] == ["manifest.json: missing"]


@pytest.mark.parametrize(
    ("gate", "gpus"),
    [
        ('{"gpus": [{"uuid": "GPU-1", "need_mib": 9}]}', ["GPU-1"]),
        ('{"gpus": []}', []),
        ('{"gpus": [7]}', []),
        ("[", []),
    ],
)
def test_cards_of_an_instance_are_those_of_its_release(box: Box, gate: str, gpus: list[str]) -> None:
    (box.home / "gates").mkdir()
    (box.home / "gates" / f"{box.digest}.json").write_text(gate)
    (box.home / "gates" / f"{box.older}.json").write_text('{"gpus": [{"uuid": "GPU-0"}]}')
    assert box.read()["gpus"] == gpus


def test_unit_missing_or_of_another_making(box: Box) -> None:
    box.unit.unlink()
    assert box.read()["drift"] == [f"/etc/systemd/system/{UNIT}: missing"]
    box.unit.write_text("[Service]\n")
    assert box.read()["drift"] == [f"/etc/systemd/system/{UNIT}: modified"]
    box.unit.unlink()
    box.unit.symlink_to("/dev/null")
    assert box.read()["drift"] == [f"/etc/systemd/system/{UNIT}: masked"]


def test_current_absent_or_dangling(box: Box) -> None:
    shutil.rmtree(box.release)
    assert box.read() == {
        "current": None,
        "releases": [box.older],
        "drift": [],
        "gpus": [],
        "gated": None,
        "stale": False,
        "port": None,
        "activation": None,
        "held": None,
        "history": [],
        "replaced": {},
    }
    box.current.unlink()
    assert box.read()["current"] is None


def test_a_unit_that_outlived_its_instance_is_still_told(tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / "gpufleet-old.service").symlink_to("/opt/gpufleet/instances/old/current/gpufleet-old.service")
    (units / "sshd.service").write_text("")
    found = releases.read_instances(Roots(str(tmp_path)))["instances"]
    assert found["old"]["current"] is None and list(found) == ["old"]


def test_runtimes_and_models_are_complete_by_their_marker(tmp_path: Path) -> None:
    runtimes = ["runtimes/vllm-0123456789ab", "runtimes/vllm-ba9876543210", "runtimes/.new"]
    for path in [*runtimes, "models/tiny/r1", "models/tiny/r2"]:
        (tmp_path / "opt/gpufleet" / path).mkdir(parents=True)
    for path in ("runtimes/vllm-0123456789ab", "models/tiny/r2"):
        (tmp_path / "opt/gpufleet" / path / ".gpufleet-complete").write_text("{}")
    assert releases.read_stores(Roots(str(tmp_path))) == {
        "runtimes": {"vllm-0123456789ab": {"complete": True}, "vllm-ba9876543210": {"complete": False}},
        "models": {"tiny/r1": {"complete": False}, "tiny/r2": {"complete": True}},
    }


SHOWN = """\
MainPID=812
NRestarts=2
Id=gpufleet-qwen.service
ActiveState=active
SubState=running
UnitFileState=enabled
InactiveExitTimestamp=Sun 2026-11-29 17:39:00 UTC
LoadState=loaded
FragmentPath=/etc/systemd/system/gpufleet-qwen.service
DropInPaths=/run/systemd/system/service.d/zzz.conf /run/systemd/system/gpufleet-qwen.service.d/a b.conf \
/etc/systemd/system/gpufleet-.service.d/all.conf
NeedDaemonReload=yes
ActiveEnterTimestamp=Sun 2026-11-29 17:40:00 UTC
InactiveEnterTimestamp=

MainPID=0
NRestarts=5
Id=gpufleet-bad.service
ActiveState=failed
SubState=failed
UnitFileState=linked
LoadState=masked
FragmentPath=/run/systemd/transient/gpufleet-bad.service
DropInPaths=
NeedDaemonReload=no
ActiveEnterTimestamp=
InactiveEnterTimestamp=Sun 2026-11-29 18:00:01 UTC
"""


def test_services_in_one_call() -> None:
    calls = []

    def show(units: list[str]) -> str:
        calls.append(units)
        return SHOWN

    found = services.read(["bad", "lost", "qwen"], show, Roots("/nowhere"))["services"]
    assert calls == [["gpufleet-bad.service", "gpufleet-lost.service", "gpufleet-qwen.service"]]
    assert found["qwen"] == {
        "active": "active",
        "sub": "running",
        "enabled": True,
        "pid": 812,
        "restarts": 2,
        "since": "2026-11-29T17:40:00Z",
        "masked": False,
        "fragment": "/etc/systemd/system/gpufleet-qwen.service",
        "drop_ins": [
            "/etc/systemd/system/gpufleet-.service.d/all.conf",
            "/run/systemd/system/gpufleet-qwen.service.d/a b.conf",
        ],
        "unread": True,
    }
    assert found["bad"] == {
        "active": "failed",
        "sub": "failed",
        "enabled": False,
        "pid": None,
        "restarts": 5,
        "since": "2026-11-29T18:00:01Z",
        "masked": True,
        "fragment": "/run/systemd/transient/gpufleet-bad.service",
        "drop_ins": [],
        "unread": False,
    }
    assert found["lost"] == services.UNKNOWN


def test_a_drop_in_that_systemd_has_not_seen_yet(tmp_path: Path) -> None:
    folder = tmp_path / "etc/systemd/system/gpufleet-bad.service.d"
    folder.mkdir(parents=True)
    (folder / "override.conf").touch()
    (folder / "notes.txt").touch()
    found = services.read(["bad", "qwen"], lambda _: SHOWN, Roots(str(tmp_path)))["services"]
    drop_in = "/etc/systemd/system/gpufleet-bad.service.d/override.conf"
    assert (found["bad"]["drop_ins"], found["bad"]["unread"]) == ([drop_in], True)
    assert drop_in not in found["qwen"]["drop_ins"]


OTHERS = """\
Id=gpufleet-qwen.service
ActiveState=active

Id=engine.service
LoadState=loaded
ActiveState=active
UnitFileState=enabled
WantedBy=multi-user.target
RequiredBy=
TriggeredBy=engine.socket

Id=gone.service
LoadState=not-found
ActiveState=inactive
UnitFileState=
"""


def test_units_of_others_in_the_same_call() -> None:
    """One is asked for by another name that it has."""
    calls = []

    def show(units: list[str]) -> str:
        calls.append(units)
        return OTHERS

    found = services.read(["qwen"], show, Roots("/nowhere"), ["vllm.service", "gone.service"])
    assert calls == [["gpufleet-qwen.service", "vllm.service", "gone.service"]]
    assert found["services"]["qwen"]["active"] == "active"
    assert found["units"] == {
        "vllm.service": {
            "id": "engine.service",
            "there": True,
            "active": "active",
            "state": "enabled",
            "wanted_by": ["engine.socket", "multi-user.target"],
        },
        "gone.service": {"id": "gone.service", "there": False, "active": "inactive", "state": "", "wanted_by": []},
    }


def test_the_probe_tells_of_units_that_it_is_asked_for_and_of_those_whose_place_was_taken(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = {"old.service": {"enabled": True, "active": True}}
    state = Path(box.roots.path("/var/lib/gpufleet/state.json"))
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"schema": 1, "instances": {"qwen": {"replaced": replaced}}}))
    asked: list[str] = []

    def read(instances: list[str], roots: Roots, units: list[str]) -> dict[str, Any]:
        asked.extend(units)
        return {"services": {}, "units": {}}

    monkeypatch.setattr(services, "read", read)
    probe._services(box.roots, ["vllm.service"])
    assert asked == ["old.service", "vllm.service"]
    assert box.read()["replaced"] == replaced


def test_no_instances_no_systemctl() -> None:
    def show(units: list[str]) -> str:
        raise AssertionError("systemctl was called")

    assert services.read([], show) == {"services": {}, "units": {}}


def test_the_probe_of_a_box_whose_systemd_does_not_answer(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    facts = probe.run({}, box.roots)["facts"]
    assert facts["instances"]["qwen"]["current"] == box.digest
    assert facts["instances"]["qwen"]["service"] == services.UNKNOWN
    # the fake box has no /proc either: what could not be read is named, the rest is there
    assert {error["source"] for error in facts["errors"]} == {"services", "hardware"}
    assert facts["schema"] == 2 and facts["driver"] is None and facts["gpus"] == []
