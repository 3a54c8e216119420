"""What lies on a box that no release names: shown with its size, freed only when asked, and only what was shown."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hostkit import build, files, garbage, model, release, state, store, sweep
from hostkit.errors import Failure
from tests.unit.workshop import Workshop

KIT = "gpufleet-kit-0123456789ab.pyz"
OLD_KIT = "gpufleet-kit-aaaaaaaaaaaa.pyz"
DAYS = 3 * 24 * 3600


class Box(Workshop):
    """Instances with releases, the runtimes and models that they name, and others."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        for module, name, value in (
            (release, "INSTANCES", "opt/instances"),
            (model, "MODELS", "opt/models"),
            (store, "MODELS_ROOT", "opt/models/.store"),
            (build, "BUILDS", "opt/builds"),
            (files, "UNITS", "units"),
            (garbage, "CACHE", "var-cache"),
            (garbage, "OLD_CACHE", "opt/cache"),
        ):
            monkeypatch.setattr(module, name, str(root / value))
        monkeypatch.setattr(sys, "argv", [str(root / "opt/kit" / KIT)])
        self.count = 0

    def put(self, path: str, size: int = 5000, age: float = DAYS) -> Path:
        """A file of this size and age; its folder gets the age, too."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"x" * size)
        for each in (target, target.parent):
            os.utime(each, (time.time() - age,) * 2)
        return target

    def runtime(self, name: str, wheels: list[dict[str, Any]] | None = None, age: float = DAYS) -> Path:
        folder = self.root / "opt/runtimes" / name
        folder.mkdir(parents=True)
        mark = {"files": [item["sha256"] for item in wheels or []], "uv": None, "compiled": None}
        (folder / files.COMPLETE).write_text(json.dumps(mark))
        os.utime(folder / files.COMPLETE, (time.time() - age,) * 2)
        self.put(f"opt/runtimes/{name}/lib.so")
        return folder

    def release(
        self, instance: str, runtime: str, of: str = "tiny/r1", current: bool = False, age: float = DAYS
    ) -> str:
        self.count += 1
        digest = hashlib.sha256(f"{instance}{self.count}".encode()).hexdigest()[:16]
        folder = self.root / "opt/instances" / instance / "releases" / digest
        folder.mkdir(parents=True)
        links = {"runtime": f"/opt/gpufleet/runtimes/{runtime}", "model": f"/opt/gpufleet/models/{of}"}
        manifest = {"schema": 1, "links": links, "runtime": runtime, "model": "0" * 64}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        os.utime(folder, (time.time() - age + self.count,) * 2)
        if current:
            link = self.root / "opt/instances" / instance / "current"
            link.unlink(missing_ok=True)
            link.symlink_to(f"releases/{digest}")
            state.update(instance, gated=digest, stale=False)
        return digest

    def found(self, kind: str | None = None) -> list[str]:
        items = garbage.run({})["items"]
        return [item["name"] for item in items if kind in (None, item["kind"])]


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(tmp_path, monkeypatch)


def swept(items: list[dict[str, Any]], models: bool = False) -> list[str]:
    return list(sweep.run({"paths": [item["path"] for item in items], "models": models})["removed"])


def test_a_release_of_before_there_were_links_names_both_in_its_unit(box: Box) -> None:
    digest = box.release("tiny", "engine-1", current=True)
    folder = box.root / "opt/instances/tiny/releases" / digest
    (folder / "manifest.json").write_text(json.dumps({"schema": 1, "runtime": "engine-7", "model": "0" * 64}))
    with pytest.raises(Failure, match="nobody can tell what is in use"):
        garbage.run({})
    unit = 'ExecStart="/opt/gpufleet/runtimes/engine-7/bin/vllm" "serve" "/opt/gpufleet/models/tiny/r7" "--config"\n'
    (folder / "gpufleet-tiny.service").write_text(unit)
    box.runtime("engine-7")
    box.put("opt/models/tiny/r7/model.safetensors")
    assert box.found("runtime") == box.found("model") == []


def test_an_empty_box_has_nothing(box: Box) -> None:
    box.stored(box.uv).unlink()
    box.stored(box.uv).parent.rmdir()
    assert garbage.run({})["items"] == []


def test_what_the_current_release_and_the_one_before_name_stays(box: Box) -> None:
    box.release("tiny", "engine-0")
    box.release("tiny", "engine-1", of="tiny/r0")
    box.release("tiny", "engine-2", current=True)
    for number in range(3):
        box.runtime(f"engine-{number}")
    for name in ("tiny/r0", "tiny/r1", "other/r1"):
        box.put(f"opt/models/{name}/model.safetensors")
    assert box.found("runtime") == ["runtimes/engine-0"]
    assert box.found("model") == ["models/other/r1"]
    assert len(box.found("release")) == 1


def test_the_release_that_last_passed_its_gate_stays_with_its_runtime(box: Box) -> None:
    good = box.release("tiny", "engine-1", current=True)
    for number in (2, 3):
        box.release("tiny", f"engine-{number}")
    link = box.root / "opt/instances/tiny/current"
    link.unlink()
    link.symlink_to(f"releases/{box.release('tiny', 'engine-4')}")  # activation under way
    state.update("tiny", gated=good, stale=True)
    for number in range(1, 5):
        box.runtime(f"engine-{number}")
    assert box.found("runtime") == ["runtimes/engine-2"]


def test_a_retired_instance_keeps_nothing(box: Box) -> None:
    box.release("gone", "engine-1", of="other/r1", current=True)
    (box.root / "opt/instances/gone/current").unlink()
    state.update("gone", gated=None)
    box.runtime("engine-1")
    box.put("opt/models/other/r1/model.safetensors")
    assert len(box.found("release")) == 1
    assert (box.found("runtime"), box.found("model")) == (["runtimes/engine-1"], ["models/other/r1"])


def test_half_made_runtimes_go_but_not_one_that_is_named(box: Box) -> None:
    box.release("tiny", "engine-1", current=True)
    (box.runtime("engine-1") / files.COMPLETE).unlink()
    (box.runtime("engine-2", age=0) / files.COMPLETE).unlink()
    box.put("opt/runtimes/.engine-3.building/tree/lib.so", age=0)
    assert box.found("runtime") == ["runtimes/.engine-3.building", "runtimes/engine-2"]


def test_builds_that_did_not_end_go_and_notes_of_wheels_that_are_gone(box: Box) -> None:
    half = box.put("opt/builds/.vllm-1-abc.building/source/setup.py").parent.parent
    wheel = box.stock("here-1.0-py3-none-any.whl", b"a wheel")
    for name, noted in (("here", wheel), ("gone", {**wheel, "sha256": "0" * 64})):
        note = box.put(f"opt/builds/{name}.json")
        note.write_text(json.dumps({"wheel": noted, "seconds": 9}))
        os.utime(note, (time.time() - DAYS,) * 2)
    found = {item["path"]: item["why"] for item in garbage.run({})["items"] if item["kind"] == "build"}
    assert found == {
        str(half): "a build that did not end",
        str(box.root / "opt/builds/gone.json"): "its wheel is not here any more",
    }


def test_the_store_keeps_what_runtimes_in_use_were_made_of(box: Box) -> None:
    used, unused = box.stock("used-1-py3-none-any.whl", b"1"), box.stock("unused-1-py3-none-any.whl", b"2")
    for item in (used, unused, box.uv):
        os.utime(box.stored(item).parent, (0, 0))
    box.release("tiny", "engine-1", current=True)
    box.runtime("engine-1", [used, box.uv])
    assert box.found("store") == ["unused-1-py3-none-any.whl"]


def test_older_kits_uvs_and_compile_caches_go(box: Box) -> None:
    for name in (KIT, OLD_KIT, "owners.txt"):
        box.put(f"opt/kit/{name}")
    box.put("opt/kit/uv-0.0.1-000000000000/bin/uv")
    os.utime(box.root / "opt/kit/uv-0.0.1-000000000000", (0, 0))
    box.release("tiny", "engine-1", current=True)
    box.runtime("engine-1")
    for name in ("gpufleet-tiny/engine-1", "gpufleet-tiny/engine-0", "gpufleet-gone/engine-1", "nginx/engine-0"):
        box.put(f"var-cache/{name}/tiny-r1/cached.so")
        os.utime(box.root / "var-cache" / name, (0, 0))
    assert box.found("kit") == [f"kit/{OLD_KIT}"]
    (box.root / "opt/kit" / garbage.LINK).symlink_to(OLD_KIT)  # what units run
    assert box.found("kit") == []
    (box.root / "opt/kit" / garbage.LINK).unlink()
    assert box.found("uv") == ["kit/uv-0.0.1-000000000000"]
    assert box.found("cache") == ["gpufleet-gone/engine-1", "gpufleet-tiny/engine-0"]


def test_what_a_deploy_may_be_about_to_name_is_left(box: Box) -> None:
    box.release("new", "engine-1", age=0)
    box.runtime("engine-1", age=0)
    box.put(f"opt/kit/{OLD_KIT}", age=3600)
    os.utime(box.stored(box.uv).parent, (0, 0))
    found = garbage.run({})
    assert [item["kind"] for item in found["items"]] == ["store"]
    assert len(found["young"]) == 3


def test_sizes_are_of_the_disk_and_counted_once(box: Box) -> None:
    folder = box.runtime("engine-1")
    os.link(folder / "lib.so", folder / "same.so")
    (folder / "link").symlink_to("/usr")
    plain = garbage.size(str(folder / "lib.so"))
    assert plain >= 5000 and plain % 512 == 0
    assert garbage.size(str(folder)) < 3 * plain + 3 * 4096
    found = garbage.run({})
    assert found["kept"]["runtime"] >= 0 and found["free"] > 0


def test_nothing_is_freed_that_was_not_shown_or_is_not_garbage(box: Box) -> None:
    box.release("tiny", "engine-2", current=True)
    box.runtime("engine-1"), box.runtime("engine-2"), box.runtime("engine-3")
    shown = [item for item in garbage.run({})["items"] if item["name"] == "runtimes/engine-1"]
    lie = {"path": str(box.root / "opt/runtimes/engine-2")}, {"path": "/etc"}, {"path": str(box.root)}
    assert swept([*shown, *lie]) == [shown[0]["path"]]
    assert box.runtimes == ["engine-2", "engine-3"]
    assert json.loads((box.root / "state/journal.jsonl").read_text())["event"] == "swept"


def test_what_came_into_use_since_it_was_shown_stays(box: Box) -> None:
    box.runtime("engine-1")
    shown = garbage.run({})["items"]
    box.release("tiny", "engine-1", current=True)
    swept(shown)
    assert box.runtimes == ["engine-1"]


def test_models_are_freed_only_when_asked_for(box: Box) -> None:
    box.put("opt/models/other/r1/model.safetensors")
    owners = box.put("home/mine/config.json").parent
    (box.root / "opt/models/mine").mkdir()
    link = box.root / "opt/models/mine/r1"
    link.symlink_to(owners)
    os.utime(link, (0, 0), follow_symlinks=False)
    shown = [item for item in garbage.run({})["items"] if item["kind"] == "model"]
    assert swept(shown) == []
    assert swept(shown, models=True) == [str(link), str(box.root / "opt/models/other/r1")]
    assert (owners / "config.json").exists() and not link.is_symlink()


def test_what_is_removed_loses_its_name_first(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that is killed leaves nothing half removed under a final name."""
    box.runtime("engine-1")
    shown = garbage.run({})["items"]
    monkeypatch.setattr(sweep.shutil, "rmtree", lambda path, ignore_errors=False: None)
    swept(shown)
    assert box.runtimes == [".engine-1.gone"]
    assert box.found("runtime") == ["runtimes/.engine-1.gone"]


def test_a_file_that_is_being_written_is_left(box: Box) -> None:
    os.utime(box.stored(box.uv).parent, (0, 0))
    shown = garbage.run({})["items"]
    with store.held(box.uv["sha256"]):
        assert swept(shown) == []
    assert swept(shown) == [item["path"] for item in shown]
    assert not box.stored(box.uv).parent.exists()


@pytest.mark.parametrize("spoilt", ["{", '{"schema": 1, "links": {"runtime": "/elsewhere"}}'])
def test_with_a_release_that_cannot_be_read_nothing_is_called_garbage(box: Box, spoilt: str) -> None:
    digest = box.release("tiny", "engine-1", current=True)
    box.runtime("engine-1")
    shown = [{"path": str(box.root / "opt/runtimes/engine-1")}]
    (box.root / "opt/instances/tiny/releases" / digest / "manifest.json").write_text(spoilt)
    for verb in (lambda: garbage.run({}), lambda: swept(shown)):
        with pytest.raises(Failure, match=f"release {digest} of tiny cannot be read"):
            verb()
    assert box.runtimes == ["engine-1"]


def test_links_lead_nowhere(box: Box) -> None:
    """The services' user owns its cache, and may put a link there."""
    box.release("tiny", "engine-1", current=True)
    box.runtime("engine-1")
    (box.root / "var-cache/gpufleet-tiny").mkdir(parents=True)
    (box.root / "var-cache/gpufleet-tiny/engine-0").symlink_to("/usr")
    (box.root / "var-cache/gpufleet-x").symlink_to("/usr")
    assert box.found("cache") == []


def test_what_was_made_while_the_clock_ran_years_ahead_is_not_young_for_years(box: Box) -> None:
    ahead = time.time() + 3000 * DAYS
    os.utime(box.stored(box.uv).parent, (ahead, ahead))
    assert box.found("store") == [box.uv["filename"]]


def test_a_uv_that_was_begun_can_go(box: Box) -> None:
    left = box.root / "opt/kit/.uv-0.0.1-000000000000.building"
    left.mkdir(parents=True)
    assert box.found("uv") == ["kit/.uv-0.0.1-000000000000.building"]


def linked(box: Box, digest: str, directory: str | None, name: str = "model.safetensors", size: int = 5000) -> Path:
    """A file of the models' store, and its second name in a model's directory."""
    path = box.put(f"opt/models/.store/{digest * 64}/{name}", size)
    if directory:
        target = box.root / "opt/models" / directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)
        os.utime(target.parent, (0, 0))
    return path


def test_a_model_s_file_in_the_store_is_free_when_no_directory_has_it(box: Box) -> None:
    box.runtime("engine-1")
    box.release("tiny", "engine-1", of="tiny/r1", current=True)
    used, free = linked(box, "a", "tiny/r1"), linked(box, "b", None)
    part = box.put(f"opt/models/.store/{'c' * 64}/x.part")
    assert (box.found("store"), box.found("model")) == (["model.safetensors", "x.part"], [])
    with store.held("c" * 64, store.MODELS):
        assert swept(garbage.run({})["items"]) == [str(free.parent)]
    assert used.exists() and part.exists() and not free.exists()


def test_a_model_goes_with_its_files_in_the_store_and_counts_once(box: Box) -> None:
    linked(box, "a", "other/r1", size=2 << 20)
    linked(box, "b", "other/r1.incoming", size=1 << 20)
    shown = garbage.run({})["items"]
    assert {item["kind"] for item in shown} == {"model"}
    assert 3 << 20 <= sum(item["bytes"] for item in shown) < 4 << 20
    assert garbage.run({})["kept"]["model"] < 1 << 20
    assert swept(shown) == []
    assert len(swept(shown, models=True)) == 4
    assert list((box.root / "opt/models/.store").iterdir()) == list((box.root / "opt/models/other").iterdir()) == []


def test_while_a_model_comes_nothing_of_the_models_store_is_free(box: Box) -> None:
    linked(box, "a", None)
    box.put(f"opt/models/.store/{'c' * 64}/x.part", age=10)
    assert box.found("store") == []


def test_a_models_folder_on_another_disk_keeps_what_its_models_have(box: Box) -> None:
    linked(box, "a", "other/r1")
    linked(box, "b", None)
    (box.root / "opt/models").rename(box.root / "disk")
    (box.root / "opt/models").symlink_to(box.root / "disk")
    assert (box.found("store"), box.found("model")) == (["model.safetensors"], [])
    assert swept(garbage.run({})["items"]) == [str(box.root / "opt/models/.store" / ("b" * 64))]
