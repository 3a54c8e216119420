"""The operation `Models` with `host.models`: the folder first, by one verb; what the look is asked for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpufleet.inventory import from_file
from operations import model, model_put, wanted
from tests.command import deploy, owners_folder
from tests.operations.boxes import INVENTORY, boxes
from tests.operations.three import CPU, MACHINE
from tests.unit.fleets import cpu_facts

PATH = "/mnt/big/models"
GOOD = {"exists": True, "real": PATH, "unmounted": None, "closed": None, "foreign": None}
TOLD: dict[str, Any] = {
    "places": {PATH: GOOD},
    "models_home": {"link": None, "empty": True, "ours": False},
    "disks": {**CPU["disks"], PATH: {"free_mib": 9000, "total_mib": 9999, "filesystem": "xfs", "mount": "/mnt/big"}},
}


class Box:
    """A box whose kit takes down what it is asked."""

    def __init__(self, home: str) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.noops: list[str] = []
        self.host = SimpleNamespace(name="box", noop=self.noops.append)
        self.changes = SimpleNamespace(models_home=home, models=[])

    def call(self, verb: str, spec: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        self.asked.append((verb, spec))
        return {}

    def command(self, action: Callable[[], Any]) -> Any:
        action()
        return iter([])


def test_the_folder_comes_before_the_models(monkeypatch: Any) -> None:
    box = Box(PATH)
    monkeypatch.setattr(model_put, "put_all", lambda box, models: box.asked.append(("put", {})))
    list(model.in_place._inner(box=box))
    assert box.asked == [("models-home", {"path": PATH}), ("put", {})] and box.noops == []


def test_nothing_to_do_is_no_command() -> None:
    box = Box("")
    list(model.in_place._inner(box=box))
    assert box.asked == [] and box.noops == ["all models are in place"]


def test_every_folder_that_any_layer_names_is_asked_for_as_the_plan_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = 'host = {"models": "//srv/models/"}\n'
    inventory = INVENTORY.format(boxes=[("a", {"ssh_hostname": "192.0.2.1", "host": {"models": "/mnt/big"}})])
    monkeypatch.chdir(owners_folder(tmp_path, inventory, group_data__sm75=host))
    fleet = from_file(tmp_path / "inventory" / "home.py")
    asked = wanted.of(fleet, {"host": {"models": "/mnt/other/"}})
    assert asked.places == {"/srv/models", "/mnt/big", "/mnt/other"}
    assert wanted.of(fleet, {}).places == {"/srv/models", "/mnt/big"}


def test_it_is_done_by_a_deploy_and_then_no_more(tmp_path: Path) -> None:
    with boxes({"cpu-1": cpu_facts(**MACHINE, **TOLD)}) as found:

        def kit(name: str, verb: str, spec: dict[str, Any]) -> dict[str, Any]:
            if verb == "lock":
                return {"held": True, "lock": {"id": spec["id"]}}
            assert (verb, spec) == ("models-home", {"path": PATH})
            done = {"link": PATH, "empty": True, "ours": True}
            found.facts[name] = {**found.facts[name], "models_home": done}
            return {"path": PATH}

        found.kit = kit
        folder = found.folder(tmp_path, cpu_1={"host": {"toolkit": "none", "models": PATH}})
        done = deploy(folder, "-y")
        assert done.returncode == 0, done.stdout
        assert f"to do: keep models in {PATH}" in done.stdout and ("cpu-1", "models-home") in found.asked
        assert f"  sets    keep models in {PATH}: /opt/gpufleet/models links to it\n" in done.stdout
        found.asked.clear()
        done = deploy(folder, "-y")
        assert done.returncode == 0 and found.asked == [], done.stdout


def test_a_box_where_it_cannot_be_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    gone = {**TOLD, "places": {PATH: {**GOOD, "exists": False}}}
    with boxes({"cpu-1": cpu_facts(**MACHINE, **gone)}) as found:
        folder = found.folder(tmp_path, cpu_1={"host": {"toolkit": "none", "models": PATH}})
        done = deploy(folder, "-y")
        assert done.returncode == 3 and f"mkdir -p {PATH}" in done.stdout, done.stdout
        assert found.asked == []
