"""A lab box that is made anew is a box nobody knows: what was known of the one of its name before is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import boxes, nvml, rootfs, state
from lab.paths import Settings, settings


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A lab whose disks are folders, with facts known of two boxes."""
    monkeypatch.setattr(boxes, "FACTS", tmp_path / "facts")
    monkeypatch.setattr(nvml, "install", lambda root, scenario: None)
    monkeypatch.setattr(rootfs, "mount", lambda settings, name, base: rootfs.root(settings, name).mkdir(parents=True))
    monkeypatch.setattr(rootfs, "personalize", lambda settings, name: None)
    (tmp_path / "facts").mkdir()
    for name in ("lab-1", "lab-2"):
        (tmp_path / "facts" / f"{name}.json").write_text("{}")
    return settings({"GPUFLEET_LAB_HOME": str(tmp_path / "lab")})


def test_a_new_box_forgets_the_one_before(where: Settings, tmp_path: Path) -> None:
    boxes.prepare(where, state.Box("lab-1", "192.0.2.1"), tmp_path)
    assert [path.name for path in (tmp_path / "facts").iterdir()] == ["lab-2.json"]


def test_a_box_that_is_there_is_not_forgotten(where: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rootfs, "is_personal", lambda settings, name: True)
    boxes.prepare(where, state.Box("lab-1", "192.0.2.1"), tmp_path)
    assert len(list((tmp_path / "facts").iterdir())) == 2


def test_facts_are_where_the_labs_inventory_keeps_them() -> None:
    assert (boxes.FACTS.parent.parent / f"{boxes.FACTS.name}.py").is_file()
