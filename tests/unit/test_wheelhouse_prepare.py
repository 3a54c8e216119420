"""A runtime is made ready on the controller: all that a box needs is in its store, or one error says what lacks."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from gpufleet.runtime import Runtime
from gpufleet.settings import Fetch, Mirrors
from gpufleet.wheelhouse import index, prepare
from gpufleet.wheelhouse.download import Tally
from gpufleet.wheelhouse.items import FetchError, FromIndex, Item, Made, locked_items
from gpufleet.wheelhouse.prepare import addresses, published, ready
from gpufleet.wheelhouse.store import Store
from hostkit import fetch
from tests.unit.servers import sha256
from tests.unit.tiny_stack import Tiny, store, tiny

__all__ = ["store", "tiny"]  # fixtures

LOCKED = ["uv", "alpha", "beta", "torch"]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fetch, index):
        monkeypatch.setattr(module.time, "sleep", lambda seconds: None)


def run(tiny: Tiny, store: Store, fetch: Fetch | None = None, python: str = "3.11") -> tuple[list[Item], Tally]:
    tally = Tally()
    return ready(Runtime(tiny.stack, python), store, tiny.mirrors, fetch or Fetch(), lambda text: None, tally), tally


def short(items: list[Item]) -> list[str]:
    return [item.filename.split("-")[0] for item in items]


def test_what_a_lock_says_as_items(tiny: Tiny) -> None:
    items = locked_items(Runtime(tiny.stack, "3.11"))
    assert short(items) == LOCKED
    name, content = "torch-3.0+cpu-py3-none-any.whl", tiny.wheels["torch-3.0+cpu-py3-none-any.whl"]
    origin = FromIndex("torch", "3.0+cpu", f"{tiny.server.url}/torch")
    assert items[3] == Item(name, sha256(content), len(content), origin)
    assert items[0].size is None
    planned_only = tiny.stack.model_copy(update={"uv": None, "lock": None})
    with pytest.raises(FetchError, match="tiny has no lock"):
        locked_items(Runtime(planned_only, "3.11"))


def test_all_is_there_with_its_size_and_the_second_time_nothing_is_asked(tiny: Tiny, store: Store) -> None:
    items, tally = run(tiny, store)
    assert short(items) == [*LOCKED, "engine", "quick"]
    assert tally == Tally(5, sum(map(len, tiny.wheels.values())))
    for item in items:
        assert store.path(item).stat().st_size == item.size and sha256(store.path(item).read_bytes()) == item.sha256
    engine, quick = items[4:]
    assert engine.origin == quick.origin == Made()
    with zipfile.ZipFile(store.path(engine)) as packed:
        assert packed.read("engine/__init__.py") == b"x = 2\n"
    asked = len(tiny.server.asked)
    shutil.rmtree(tiny.root / "git")
    assert run(tiny, store) == (items, Tally())
    assert run(tiny, store, Fetch(offline=True)) == (items, Tally())
    assert len(tiny.server.asked) == asked


def test_the_same_bytes_on_another_controller(tiny: Tiny, store: Store, tmp_path: Path) -> None:
    assert run(tiny, store)[0] == run(tiny, Store(tmp_path / "other"))[0]


def test_the_second_python_fetches_only_what_is_new(tiny: Tiny, store: Store) -> None:
    run(tiny, store, python="3.12")
    assert run(tiny, store)[1] == Tally(1, len(tiny.wheels["beta-2.0-py3-none-any.whl"]))


def test_a_changed_patch_gives_another_wheel_from_the_same_published_one(tiny: Tiny, store: Store) -> None:
    before, _ = run(tiny, store)
    patch = tiny.root / "files/patches/engine-1/0001-two.patch"
    patch.write_text(patch.read_text().replace("+x = 2", "+x = 3"))
    after, tally = run(tiny, store, Fetch(offline=True))
    assert before[:4] == after[:4] and before[4].sha256 != after[4].sha256 and tally == Tally()


def test_a_patch_that_does_not_apply_is_said(tiny: Tiny, store: Store) -> None:
    patch = tiny.root / "files/patches/engine-1/0001-two.patch"
    patch.write_text(patch.read_text().replace("-x = 1", "-x = 7"))
    with pytest.raises(FetchError, match=r"^tiny: .*0001-two\.patch"):
        run(tiny, store)
    assert not list(store.made.glob("*/*.whl")) and not list(store.made.glob(".*"))


def test_offline_names_all_that_lacks_and_the_command_that_gets_it(tiny: Tiny, store: Store) -> None:
    with pytest.raises(FetchError) as caught:
        run(tiny, store, Fetch(offline=True))
    said = str(caught.value)
    assert said.startswith(f"{store.root} lacks 6 files of tiny for Python 3.11, and fetch.offline is set: uv 0.1.0, ")
    assert [name for name in tiny.wheels if name.replace("-", " ", 1).split("-")[0] not in said] == []
    assert "quick 0.1 (file://" in said
    assert "gpufleet fetch --stack tiny --python 3.11 --archive store.tar" in said
    assert "gpufleet fetch --from store.tar" in said
    assert tiny.server.asked == []


def test_boxes_that_fetch_themselves_leave_the_controller_what_it_makes(tiny: Tiny, store: Store) -> None:
    items, tally = run(tiny, store, Fetch(by="boxes"))
    assert short(items) == [*LOCKED, "engine", "quick"]
    assert [name.split("-")[0] for name in tiny.fetched()] == ["engine", "uv"] and tally.files == 2
    assert [store.has(item) for item in items] == [True, False, False, False, True, True]
    lacking = [item for item in items if not store.has(item)]
    found = addresses(items, tiny.mirrors)
    assert found[lacking[2].sha256] == f"{tiny.server.url}/files/torch-3.0%2Bcpu-py3-none-any.whl"
    assert {found[item.sha256].rpartition("/")[2].split("-")[0] for item in items[:4]} == set(LOCKED)


def test_what_lies_on_the_controller_comes_from_there_when_boxes_fetch(
    tiny: Tiny, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "beta-2.0-py3-none-any.whl").write_bytes(tiny.wheels["beta-2.0-py3-none-any.whl"])
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    items, _ = run(tiny, store, Fetch(by="boxes"))
    assert [store.has(item) for item in items] == [True, False, True, False, True, True]
    assert items[2].sha256 not in addresses(items, tiny.mirrors)


def test_what_no_index_has_is_said(tiny: Tiny, store: Store) -> None:
    del tiny.server.files["/simple/beta/"]
    with pytest.raises(FetchError, match=r"1 files cannot be found: beta-2\.0-py3-none-any\.whl: .*no such project"):
        run(tiny, store)
    with pytest.raises(FetchError, match="cannot be found"):
        addresses(locked_items(Runtime(tiny.stack, "3.11")), tiny.mirrors)


def test_what_was_left_by_a_killed_run_is_cleared(tiny: Tiny, store: Store) -> None:
    left = store.made / ".repack-x"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"h")
    run(tiny, store)
    assert not left.exists()


def test_a_disk_that_fails_while_a_wheel_is_made(tiny: Tiny, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prepare.wheel, "repack", full)
    with pytest.raises(FetchError, match=r"tiny: the wheel of engine cannot be made in .*No space left .*free space"):
        run(tiny, store)


def test_the_published_wheels_are_kept_for_an_archive(tiny: Tiny, store: Store) -> None:
    (item,) = published(Runtime(tiny.stack, "3.11"), store, tiny.mirrors, lambda text: None, Tally())
    content = tiny.wheels["engine-1.0-py3-none-any.whl"]
    assert (item.filename, item.size) == ("engine-1.0-py3-none-any.whl", len(content))
    assert store.path(item).read_bytes() == content


def test_pip_is_not_asked_when_nothing_lacks(tiny: Tiny, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    items, _ = run(tiny, store)

    def asked(mirrors: Mirrors) -> None:
        raise AssertionError("it was asked where packages are")

    monkeypatch.setattr(prepare, "places", asked)
    assert run(tiny, store)[0] == items
