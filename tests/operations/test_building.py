"""A build in a run: on the first box that needs it, in a job, once; its wheel kept for every other."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpufleet.errors import BoxError
from gpufleet.settings import Settings
from gpufleet.stacks import Stack
from gpufleet.wheelhouse import built as records
from gpufleet.wheelhouse.store import Store
from hostkit import stock
from hostkit.__main__ import main
from hostkit.errors import Failure
from operations import once, remote
from tests.operations.builder import TOOL, WHEEL, Box, built, runtime, stack, store
from tests.unit.test_sdist import PATCH as SERIES

__all__ = ["stack", "store"]  # fixtures


@pytest.fixture(autouse=True)
def run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a run of its own."""
    monkeypatch.setattr(once, "_failed", {})


def test_the_first_box_builds_and_the_wheel_is_kept(stack: Stack, store: Store) -> None:
    box, needs = Box("one"), runtime(stack)
    (item,) = built(box, needs, store)
    assert store.path(item).read_bytes() == WHEEL
    assert box.opened == f"/opt/gpufleet/store/{item.sha256}/{item.filename}"
    assert box.sessions == 0, "closed again"
    ((verb, job),) = box.calls
    assert (verb, job["verb"]) == ("job", "build")
    spec = job["spec"]
    assert needs.building is not None
    assert (spec["name"], spec["version"]) == (needs.building.name, needs.building.version)
    assert [item["filename"] for item in spec["files"]] == ["tool-1.0-py3-none-any.whl"]
    assert "MAX_JOBS" not in spec["env"]  # by it the spec would differ from run to run, and no job be found again
    source = next(item for item in box.brought if item.filename == spec["source"]["filename"])
    assert source.sha256 == spec["source"]["sha256"] and store.has(source)
    assert {item.filename for item in box.brought} >= {spec["uv"]["filename"], "tool-1.0-py3-none-any.whl"}


def test_the_next_box_and_the_next_run_get_the_wheel(stack: Stack, store: Store) -> None:
    first = built(Box("one"), runtime(stack), store)
    other = Box("two")
    assert built(other, runtime(stack), store) == first
    assert other.calls == [] and other.brought == []


@pytest.mark.parametrize(("builds", "gets"), [("2.9", "2.36"), ("2.36", "2.36"), (None, "2.36"), ("2.36", None)])
def test_a_box_whose_system_is_no_older_gets_the_wheel(
    stack: Stack, store: Store, builds: str | None, gets: str | None
) -> None:
    first = built(Box("one", glibc=builds), runtime(stack), store)
    assert built(Box("two", glibc=gets), runtime(stack), store) == first


def test_a_box_with_an_older_system_is_told_how_to_get_one(stack: Stack, store: Store) -> None:
    built(Box("new", glibc="2.41"), runtime(stack), store)
    old = Box("old", glibc="2.9")
    with pytest.raises(BoxError) as caught:
        built(old, runtime(stack), store)
    assert old.calls == [] and caught.value.cause == (
        "pkg-1.0+x-py3-none-any.whl was built on new, whose system has glibc 2.41; this box has 2.9, "
        "where it may not load"
    )
    (record,) = (store.root / "built").glob("*.json")
    assert f"delete {record} on this controller" in caught.value.remedy
    # What it says helps: the old one builds, and its wheel is good for both.
    record.unlink()
    (item,) = built(old, runtime(stack), store)
    assert len(old.calls) == 1
    assert built(Box("new", glibc="2.41"), runtime(stack), store) == [item]


def test_another_card_has_a_build_of_its_own(stack: Stack, store: Store) -> None:
    built(Box("one"), runtime(stack), store)
    other = Box("two")
    built(other, runtime(stack, archs=("sm80",)), store)
    assert len(other.calls) == 1


def test_a_wheel_that_is_gone_is_built_again(stack: Stack, store: Store) -> None:
    (item,) = built(Box("one"), runtime(stack), store)
    store.path(item).unlink()
    again = Box("one")
    assert built(again, runtime(stack), store) == [item]
    assert len(again.calls) == 1


def test_where_a_build_failed_no_other_box_tries_in_this_run(stack: Stack, store: Store) -> None:
    with pytest.raises(BoxError, match=r"^one: a\.cu: error"):
        built(Box("one", fails=("a.cu: error", True)), runtime(stack), store)
    other = Box("two")
    with pytest.raises(BoxError, match=r"^two: pkg-1.0-\w+ was not built: a.cu: error \(on one\)"):
        built(other, runtime(stack), store)
    assert other.calls == []


@pytest.mark.parametrize("everywhere", [True, False])
def test_that_a_like_box_would_fail_too_comes_from_the_kit(
    everywhere: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise Failure("no such thing", "mend it", everywhere)

    monkeypatch.setattr(stock, "run", fail)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    assert main(["stock"]) == 1
    lines = capsys.readouterr().out.splitlines()
    with pytest.raises(BoxError, match=r"^one: no such thing\. Mend it\.$") as caught:
        remote._result(cast(Any, SimpleNamespace(name="one")), lines, print)
    assert caught.value.everywhere is everywhere


def test_after_what_is_of_one_box_alone_the_next_builds(stack: Stack, store: Store) -> None:
    with pytest.raises(BoxError, match=r"^one: the connection broke off"):
        built(Box("one", fails=("the connection broke off", False)), runtime(stack), store)
    other = Box("two")
    assert built(other, runtime(stack), store) and len(other.calls) == 1


def test_what_arrives_damaged_is_not_kept(stack: Stack, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box("one")
    monkeypatch.setattr(box, "open", lambda path, mode: _prefetched(b"another"))
    with pytest.raises(BoxError, match=r"^one: pkg-1.0\+x-py3-none-any.whl: one has sha256"):
        built(box, runtime(stack), store)
    assert not list((store.root / "built").glob("*"))


def _prefetched(data: bytes) -> Any:
    handle = io.BytesIO(data)
    handle.prefetch = lambda: None  # type: ignore[attr-defined]
    return handle


@pytest.mark.parametrize(
    ("toolkit", "archs", "said"), [(None, ("sm75",), "no CUDA toolkit"), ("13-0", (), "no GPU of its architectures")]
)
def test_a_box_that_cannot_build_says_why(
    stack: Stack, store: Store, toolkit: str | None, archs: tuple[str, ...], said: str
) -> None:
    with pytest.raises(BoxError, match=f"for which this box has {said}"):
        built(Box("one"), runtime(stack, toolkit, archs), store)


def test_a_stack_that_builds_nothing_needs_nothing(stack: Stack, store: Store) -> None:
    plain = stack.model_copy(update={"build": None, "from_source": False})
    assert built(Box("one"), runtime(plain), store) == []


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda files: (files / "patches" / "pkg" / "series").unlink(), "series: no such file"),
        (lambda files: (files / "locks" / "pkg-build-py311.txt").unlink(), "pkg-build-py311.txt"),
        (lambda files: (files / "locks" / "pkg-build-py311.txt").write_text("tool==1.0\n"), "no hash"),
        (
            lambda files: (files / "patches" / "pkg" / "0001-two.patch").write_text(SERIES.replace("= 1", "= 7")),
            "0001-two.patch:3: pkg/value.py, hunk 1: does not match",
        ),
    ],
)
def test_what_is_wrong_on_the_controller_is_the_boxs_failure(
    stack: Stack, store: Store, spoil: Callable[[Path], object], said: str
) -> None:
    spoil(stack.files)
    box = Box("one")
    with pytest.raises(BoxError, match=said):
        built(box, runtime(stack), store)
    assert box.calls == []


def test_the_patched_archive_is_written_by_one_at_a_time(
    stack: Stack, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deploy for another Python may be packing the same one: what it is writing now is waited for, and taken."""
    needs = runtime(stack)
    assert needs.building is not None
    mirrors, fetch = Settings().mirrors, Settings().fetch
    source, _ = records.ready(needs.building, store, mirrors, fetch, print)
    written = store.path(source).read_bytes()
    store.path(source).unlink()
    waited: list[float] = []
    with ExitStack() as other:
        other.enter_context(store.turn(source.sha256, lambda: None))

        def end(seconds: float) -> None:
            waited.append(seconds)
            store.path(source).write_bytes(written)
            other.close()

        monkeypatch.setattr(records.time, "sleep", end)
        monkeypatch.setattr(Store, "write", lambda *_: pytest.fail("it is there"))
        assert records.ready(needs.building, store, mirrors, fetch, print)[0] == source
    assert len(waited) == 1


def test_a_git_mirror_that_no_box_reaches_is_refused_before_anything_is_brought(stack: Stack, store: Store) -> None:
    box = Box("one", mirrors={"git": "file:///srv/git/{path}"})
    with pytest.raises(BoxError, match=r"^one: .*file:///srv/git/\{path\} is a folder of the controller.*serve that"):
        built(box, runtime(stack), store)
    assert box.calls == [] and box.brought == []
    built(Box("one"), runtime(stack), store)
    assert len(built(box, runtime(stack), store)) == 1, "what is built already needs no mirror"


def test_offline_what_is_not_there_is_named(stack: Stack, store: Store) -> None:
    (lock,) = (stack.files / "locks").glob("*.txt")
    lock.write_text(lock.read_text().replace(hashlib.sha256(TOOL).hexdigest(), "9" * 64))
    with pytest.raises(BoxError, match=r"tool-1.0-py3-none-any.whl: not in the store, and fetch.offline is set"):
        built(Box("one", fetch={"offline": True}), runtime(stack), store)
