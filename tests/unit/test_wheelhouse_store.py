"""The store: a file has its name only when it is right; two at once; a full disk; what was killed."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpufleet.wheelhouse import store as module
from gpufleet.wheelhouse.items import FetchError, FromIndex, Item, once
from gpufleet.wheelhouse.store import Store, default_root
from tests.command import REPOSITORY
from tests.unit.servers import sha256

DATA = b"a wheel" * 1000
ITEM = Item("tiny-1.0-py3-none-any.whl", sha256(DATA), len(DATA), FromIndex("tiny", "1.0"))


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GPUFLEET_STORE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_root() == tmp_path / "gpufleet" / "store"
    monkeypatch.setenv("GPUFLEET_STORE", "/big/store")
    assert default_root() == Path("/big/store")
    assert Store(Path("/s")).path(ITEM) == Path(f"/s/{ITEM.sha256[:2]}/{ITEM.sha256}/{ITEM.filename}")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a\nb", "x" * 300])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(FetchError, match="no file for a store"):
        Store(Path("/s")).path(Item(name, ITEM.sha256, None, ITEM.origin))
    with pytest.raises(FetchError, match="no file for a store"):
        Store(Path("/s")).path(Item(ITEM.filename, name, None, ITEM.origin))


def test_what_is_put_there_is_there_with_its_size(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert not store.has(ITEM)
    store.write(ITEM, io.BytesIO(DATA), "somewhere")
    assert store.has(ITEM) and store.path(ITEM).read_bytes() == DATA
    unsized = Item(ITEM.filename, ITEM.sha256, None, ITEM.origin)
    assert store.has(unsized) and store.sized(unsized) == ITEM
    store.path(ITEM).write_bytes(DATA[:5])
    assert not store.has(ITEM)


@pytest.mark.parametrize("content", [b"", DATA[:-1], DATA + b"x", b"another" * 1000])
def test_another_file_never_gets_the_name(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(FetchError, match=r"tiny-1\.0-py3-none-any\.whl: somewhere has sha256 .* not the pinned"):
        Store(tmp_path).write(ITEM, io.BytesIO(content), "somewhere")
    assert files(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        Store(tmp_path).write(ITEM, io.BytesIO(DATA), "somewhere")
    assert files(tmp_path) == []


def test_room_is_asked_for_before(tmp_path: Path) -> None:
    Store(tmp_path / "new").check_room(1)
    with pytest.raises(FetchError, match=r"new: 931322574615\.5 GiB are to be written, .* are free\. Free space there"):
        Store(tmp_path / "new").check_room(10**21)


def test_what_was_made_is_there_once_on_disk(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = store.made / "key" / ITEM.filename
    made.parent.mkdir(parents=True)
    made.write_bytes(DATA)
    item = store.link(made, ITEM.sha256)
    assert (item.filename, item.sha256, item.size) == (ITEM.filename, ITEM.sha256, len(DATA))
    assert store.path(item).samefile(made)
    assert store.link(made, ITEM.sha256) == item
    assert files(tmp_path) == [str(store.path(item).relative_to(tmp_path)), f"made/key/{ITEM.filename}"]


def test_two_at_once_put_the_same_file(tmp_path: Path) -> None:
    store = Store(tmp_path)
    threads = [threading.Thread(target=store.write, args=(ITEM, io.BytesIO(DATA), "x")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files(tmp_path) == [str(store.path(ITEM).relative_to(tmp_path))]
    assert store.path(ITEM).read_bytes() == DATA


def test_a_turn_is_taken_from_another_process_when_that_ends(tmp_path: Path) -> None:
    script = f"""
import sys, time
from pathlib import Path
from gpufleet.wheelhouse.store import Store
with Store(Path({str(tmp_path)!r})).turn("x", lambda: None):
    print("mine", flush=True)
    sys.stdin.read()
"""
    other = subprocess.Popen(
        [sys.executable, "-c", script], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None and other.stdout.readline() == "mine\n"
    waited = []

    def wait() -> None:
        waited.append(1)
        if len(waited) == 3:
            other.kill()
            other.wait()

    with Store(tmp_path).turn("x", wait):
        assert len(waited) >= 3
    with Store(tmp_path).turn("x", wait), Store(tmp_path).turn("y", wait):
        assert len(waited) >= 3


def test_each_file_once() -> None:
    other = Item("other", "0" * 64, 1, ITEM.origin)
    assert once([ITEM, other, ITEM]) == [ITEM, other]
