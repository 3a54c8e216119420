"""The store's files as one tar: the same bytes each time, whole or not there, every hash checked on the way in."""

from __future__ import annotations

import errno
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpufleet.wheelhouse import archive
from gpufleet.wheelhouse.items import FetchError, FromIndex, Item
from gpufleet.wheelhouse.store import Store
from tests.unit.servers import sha256

NAMES = ("b-1-py3-none-any.whl", f"a-1-py3-none-{'x' * 120}.whl")
KEY = "0123456789abcdef"


def filled(root: Path) -> tuple[Store, list[Item]]:
    """A store with two fetched files and one that was made."""
    store, items = Store(root), []
    for name in NAMES:
        item = Item(name, sha256(name.encode()), None, FromIndex("x", "1"))
        store.write(item, io.BytesIO(name.encode()), "x")
        items.append(item)
    folder = store.made / KEY
    folder.mkdir(parents=True)
    (folder / "moved.json").write_text('["a hunk"]')
    (folder / "made-1-py3-none-any.whl").write_bytes(b"made")
    items.append(store.link(folder / "made-1-py3-none-any.whl", sha256(b"made")))
    return store, items


def test_it_comes_back_with_what_was_made(tmp_path: Path) -> None:
    store, items = filled(tmp_path / "s")
    written = archive.write(store, items, tmp_path / "a.tar")
    assert written == (tmp_path / "a.tar").stat().st_size
    other = Store(tmp_path / "t")
    assert archive.put(other, tmp_path / "a.tar") == (3, 3)
    assert [other.path(item).read_bytes() for item in items] == [store.path(item).read_bytes() for item in items]
    made = other.made / KEY / "made-1-py3-none-any.whl"
    assert made.samefile(other.path(items[2]))
    assert (other.made / KEY / "moved.json").read_text() == '["a hunk"]'
    assert archive.put(other, tmp_path / "a.tar") == (3, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "s", "t"]


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    store, items = filled(tmp_path / "s")
    archive.write(store, items, tmp_path / "a.tar")
    archive.write(filled(tmp_path / "t")[0], items[::-1], tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.getnames()[0] == "gpufleet-store.json"
        assert [name.split("/")[1] for name in tar.getnames()[1:]] == sorted([*NAMES, "made-1-py3-none-any.whl"])


def test_a_damaged_file_of_the_store_does_not_get_into_one(tmp_path: Path) -> None:
    store, items = filled(tmp_path / "s")
    store.path(items[0]).write_bytes(b"x" * len(NAMES[0]))
    with pytest.raises(FetchError, match=r"b-1-py3-none-any\.whl is damaged.*Delete it, and fetch again"):
        archive.write(store, items, tmp_path / "a.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_full_disk_leaves_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store, items = filled(tmp_path / "s")
    monkeypatch.setattr(archive.os, "fsync", full)
    with pytest.raises(FetchError, match=r"a\.tar cannot be written: No space left"):
        archive.write(store, items, tmp_path / "a.tar")
    with pytest.raises(FetchError, match=r"nowhere/a\.tar cannot be written: No such file"):
        archive.write(store, items, tmp_path / "nowhere" / "a.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("blocks", range(13))
def test_one_that_was_cut_short_is_said_and_a_whole_one_goes_on(tmp_path: Path, blocks: int) -> None:
    store, items = filled(tmp_path / "s")
    archive.write(store, items, tmp_path / "a.tar")
    whole = (tmp_path / "a.tar").read_bytes()
    used = len(whole.rstrip(b"\0"))  # what follows the last file is padding
    (tmp_path / "a.tar").write_bytes(whole[: blocks * used // 13])
    with pytest.raises(FetchError, match=r"a\.tar.*[Cc]opy it again|a\.tar does not begin with"):
        archive.put(Store(tmp_path / "t"), tmp_path / "a.tar")
    (tmp_path / "a.tar").write_bytes(whole)
    assert archive.put(Store(tmp_path / "t"), tmp_path / "a.tar")[0] == 3
    assert all(Store(tmp_path / "t").has(item) for item in items)


@pytest.mark.parametrize("content", [b"", b"no tar", b"\0" * 1024, b"x" * 10240])
def test_what_is_no_archive_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(FetchError, match=r"a\.tar (is no whole archive|does not begin with)"):
        archive.put(Store(tmp_path / "t"), tmp_path / "a.tar")


def remake(path: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    """Write an archive again, with another manifest or other members."""
    with tarfile.open(path) as tar:
        members = {info.name: tar.extractfile(info).read() for info in tar.getmembers()}  # type: ignore[union-attr]
    manifest = json.loads(members.pop("gpufleet-store.json"))
    change(manifest, members)
    with tarfile.open(path, "w") as tar:
        for name, content in {"gpufleet-store.json": json.dumps(manifest).encode(), **members}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def wrong_bytes(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
    name = next(name for name in members if name.endswith(NAMES[0]))
    members[name] = b"x" * len(members[name])


def gone(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
    del members[next(name for name in members if name.endswith(NAMES[0]))]


def leads_away(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
    manifest["files"][0]["filename"] = "../../escaped"


def key_leads_away(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
    manifest["files"][2]["made"] = {"key": "../../../../escaped", "note": "[]"}


def newer(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
    manifest["schema"] = 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (wrong_bytes, r"b-1-py3-none-any\.whl: .*a\.tar has sha256 .* not the pinned"),
        (gone, r"a\.tar has no .*/b-1-py3-none-any\.whl, which its own list names"),
        (leads_away, "no file for a store"),
        (key_leads_away, "its list of files is wrong"),
        (newer, "its list of files is wrong: .*schema"),
    ],
)
def test_a_wrong_archive_never_gets_a_wrong_file_into_the_store(
    tmp_path: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None], said: str
) -> None:
    store, items = filled(tmp_path / "s")
    archive.write(store, items, tmp_path / "a.tar")
    remake(tmp_path / "a.tar", change)
    other = Store(tmp_path / "t")
    with pytest.raises(FetchError, match=said):
        archive.put(other, tmp_path / "a.tar")
    assert not list(tmp_path.rglob("escaped*")) and not list(tmp_path.rglob("*.part"))
    for path in (tmp_path / "t").rglob("*.whl"):
        assert path.parent.name == sha256(path.read_bytes()) or path.parent.name == KEY
