"""A replaced MTP head beside an owner's folder, which stays as it is: links, and what is written anew."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from hostkit import head
from tests.unit import heads
from tests.unit.heads import NEW, tree
from tests.unit.test_head import INDEX, MTP, RIGHT, cut_off, loaded, store

__all__ = ["store"]  # the fixture


def overlaid(source: Path, folder: Path, new: Path) -> dict[str, Any]:
    return head.overlay(str(source), str(folder), str(new))


def test_an_owners_folder_is_never_touched(store: Path, tmp_path: Path) -> None:
    (store / "sub").mkdir()
    (store / "sub" / "file").write_text("x")
    (store / f"{INDEX}.original").write_text("an owner's own")
    before, folder, new = tree(store), tmp_path / "model", heads.head(tmp_path / "new" / MTP)
    overlaid(store, folder, new)
    assert loaded(folder) == RIGHT
    assert os.readlink(folder / "tokenizer.json") == str(store / "tokenizer.json")
    assert os.readlink(folder / f"{INDEX}.original") == str(store / INDEX)
    assert (folder / "sub" / "file").read_text() == "x"
    seen = tree(folder)
    overlaid(store, folder, new)
    assert tree(folder) == seen
    assert tree(store) == before


def test_an_overlay_follows_another_folder_and_another_head(store: Path, tmp_path: Path) -> None:
    folder, new = tmp_path / "model", heads.head(tmp_path / "new" / MTP)
    overlaid(store, folder, new)
    moved = store.rename(tmp_path / "elsewhere")
    overlaid(moved, folder, new)
    assert loaded(folder) == RIGHT
    assert os.readlink(folder / "config.json") == str(moved / "config.json")
    overlaid(moved, folder, heads.head(tmp_path / "newer" / MTP, value=4))
    assert loaded(folder) == RIGHT | dict.fromkeys(NEW, 4.0)


def test_an_overlay_cut_off_at_any_step_ends_right(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, before = heads.head(tmp_path / "new" / MTP), tree(store)
    overlaid(store, tmp_path / "whole", new)
    whole, steps, done = tree(tmp_path / "whole", times=False), 0, False
    while not done:
        folder = tmp_path / f"model-{steps}"
        done = cut_off(steps, monkeypatch, lambda folder=folder: overlaid(store, folder, new))  # type: ignore[misc]
        overlaid(store, folder, new)
        assert tree(folder, times=False) == whole, steps
        steps += 1
    assert steps >= 8
    assert tree(store) == before


def test_from_another_file_system_the_head_is_a_symbolic_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, folder = heads.head(tmp_path / "new" / MTP), tmp_path / "model"
    link = os.link

    def refusing(target: str, path: str) -> None:
        if Path(target).parent == new.parent:
            raise OSError(errno.EXDEV, "another file system")
        link(target, path)

    monkeypatch.setattr(os, "link", refusing)
    for source in (heads.separate(tmp_path / "a"), heads.mixed(tmp_path / "b")):
        overlaid(source, folder, new)
        assert os.readlink(folder / MTP) == str(new)
        assert loaded(folder) == RIGHT
        before = tree(folder)
        overlaid(source, folder, new)
        assert tree(folder) == before


def test_links_of_a_hub_cache_are_followed(tmp_path: Path) -> None:
    """A snapshot of the hub's cache: links, relative ones, to blobs."""
    blobs = heads.separate(tmp_path / "blobs")
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    heads.head(tmp_path / "heads" / "blob")
    (tmp_path / "heads" / "snapshot").mkdir()
    new = tmp_path / "heads" / "snapshot" / MTP
    new.symlink_to("../blob")
    overlaid(snapshot, tmp_path / "model", new)
    assert loaded(tmp_path / "model") == RIGHT
