"""Runtimes with extensions in a run: the first box compiles, every like one gets what it made, in whatever order."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest
from gevent.event import Event

from gpufleet.errors import BoxError
from gpufleet.plan import BoxPlan
from gpufleet.wheelhouse.items import FetchError, Item, Made
from gpufleet.wheelhouse.store import Store
from operations import once, runtime_install
from operations.runtime import installed
from tests.unit.fleets import SHA
from tests.unit.test_runtime_spec import planned

UV = Item("uv-0.9.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", SHA, 9, Made())
WHEEL = Item("torch-2.13.0+cu130-cp311-cp311-manylinux_2_28_x86_64.whl", "1" * 64, 100, Made())
OF_ALL, OF_ONE = True, False  # whose the failure is


def archive(glibc: str) -> bytes:
    return f"kernels of glibc {glibc}".encode()


class Box:
    """A box that installs: it takes what another compiled unless its own C library is older, as hostkit.compile does.

    + fails: (cause, whether it would be the same on every like box)
    """

    def __init__(self, plan: BoxPlan, name: str, glibc: str = "2.36", fails: tuple[str, bool] | None = None) -> None:
        self.plan, self.glibc, self.fails = plan, glibc, fails
        self.changes = SimpleNamespace(runtimes=list(plan.runtimes))
        self.said: list[str] = []
        self.noops: list[str] = []
        self.specs: list[dict[str, Any]] = []
        self.brought: list[Item] = []
        self.meanwhile: Callable[[], object] = lambda: None
        client = SimpleNamespace(open_sftp=self.open_sftp)
        connector = SimpleNamespace(client=client)
        self.host = SimpleNamespace(name=name, log=self.said.append, noop=self.noops.append, connector=connector)

    @contextmanager
    def open_sftp(self) -> Iterator[Any]:
        yield SimpleNamespace(open=self.open)

    def open(self, path: str, mode: str) -> Any:
        handle = io.BytesIO(archive(self.glibc))
        handle.prefetch = lambda: None  # type: ignore[attr-defined]
        return handle

    def call(self, verb: str, job: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        if verb == "stock":
            return {"have": job["files"]}
        assert (verb, job["verb"]) == ("job", "runtime")
        spec = job["spec"]
        self.specs.append(spec)
        self.meanwhile()
        if self.fails:
            raise BoxError(self.host.name, self.fails[0], "mend it", self.fails[1])
        known = spec["compiled"]
        if known and known["glibc"] <= self.glibc:
            return {"path": "/a", "verified": {}, "compiled": known}
        data = archive(self.glibc)
        made = {"filename": f"{spec['name']}-compiled.tar", "sha256": hashlib.sha256(data).hexdigest()}
        return {"path": "/a", "verified": {}, "compiled": {**made, "size": len(data), "glibc": self.glibc}}


@pytest.fixture(autouse=True)
def ready(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each test is a run of its own; what is got on the controller is there. The runtimes that were got, in order."""
    got: list[str] = []

    def get(wanted: Any, *_: Any) -> list[Item]:
        got.append(wanted.name)
        return [UV, WHEEL]

    monkeypatch.setattr(once, "_failed", {})
    monkeypatch.setattr(runtime_install, "_ready", {})
    monkeypatch.setattr(runtime_install.prepare, "ready", get)
    monkeypatch.setattr(runtime_install.prepare, "addresses", lambda *_: {})
    monkeypatch.setattr(runtime_install.swarm, "bring", lambda box, items, *_: box.brought.extend(items))
    return got


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def plan(tmp_path: Path) -> BoxPlan:
    return planned(tmp_path)


def install(box: Box, store: Store) -> list[Item]:
    (wanted,) = box.plan.runtimes
    return runtime_install.install(cast(Any, box), wanted, store)


def record(box: Box, store: Store) -> dict[str, Any]:
    (path,) = (store.root / "built").glob("*.json")
    assert path.name == f"{box.plan.runtimes[0].name}-compiled.json"
    return dict(json.loads(path.read_text()))


def test_the_first_box_compiles_and_the_second_gets_what_it_made(plan: BoxPlan, store: Store) -> None:
    one, two = Box(plan, "one"), Box(plan, "two")
    assert install(one, store) == [UV, WHEEL]
    assert [spec["compiled"] for spec in one.specs] == [None] and one.brought == [UV, WHEEL]
    kept = record(one, store)
    made = Item(kept["filename"], kept["sha256"], kept["size"], Made())
    assert store.path(made).read_bytes() == archive("2.36") and kept["glibc"] == "2.36"
    install(two, store)
    assert [item.sha256 for item in two.brought] == [UV.sha256, WHEEL.sha256, made.sha256]
    (spec,) = two.specs
    assert {key: spec["compiled"][key] for key in ("filename", "sha256", "glibc")} == {
        key: kept[key] for key in ("filename", "sha256", "glibc")
    }


def test_who_comes_meanwhile_waits_for_it(plan: BoxPlan, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, waits = Box(plan, "one"), Box(plan, "two"), Event()
    monkeypatch.setattr(once, "LOOK_SECONDS", 0.01)
    two.host.log = lambda line: (two.said.append(line), waits.set())
    others: list[Any] = []

    def compile_while_two_comes() -> None:
        others.append(gevent.spawn(install, two, store))
        assert waits.wait(60)
        assert two.specs == []

    one.meanwhile = compile_while_two_comes
    install(one, store)
    others[0].get(timeout=60)
    name = plan.runtimes[0].name
    assert two.said == [f"another box compiles for {name}: waiting for it"]
    assert two.specs[0]["compiled"]["sha256"] == record(one, store)["sha256"]


def test_a_box_with_an_older_system_compiles_for_itself(plan: BoxPlan, store: Store) -> None:
    one, old, three = Box(plan, "one", "2.39"), Box(plan, "old", "2.36"), Box(plan, "three", "2.39")
    install(one, store)
    first = record(one, store)
    install(old, store)
    assert len(old.specs) == 1 and record(one, store) == first
    install(three, store)
    assert three.specs[0]["compiled"]["sha256"] == hashlib.sha256(archive("2.39")).hexdigest()


def test_an_archive_that_is_gone_from_the_controller_is_made_again(plan: BoxPlan, store: Store) -> None:
    install(Box(plan, "one"), store)
    for path in store.root.rglob("*.tar"):
        path.unlink()
    two = Box(plan, "two")
    install(two, store)
    assert two.specs[0]["compiled"] is None and list(store.root.rglob("*.tar"))


def test_what_does_not_compile_is_not_tried_on_the_next_box(plan: BoxPlan, store: Store) -> None:
    words = "compiling kernels for sm75 failed: a.cu(3): error"
    with pytest.raises(BoxError, match=r"^one: compiling kernels for sm75 failed"):
        install(Box(plan, "one", fails=(words, OF_ALL)), store)
    two = Box(plan, "two")
    with pytest.raises(BoxError) as caught:
        install(two, store)
    assert caught.value.box == "two" and two.specs == []
    assert caught.value.cause == f"{plan.runtimes[0].name}-compiled was not made: {words} (on one)"


@pytest.mark.parametrize("cause", ["the connection broke off", "the file system of /opt/gpufleet has 3 MiB free"])
def test_after_what_is_of_one_box_alone_the_next_takes_over(plan: BoxPlan, store: Store, cause: str) -> None:
    with pytest.raises(BoxError, match=cause):
        install(Box(plan, "one", fails=(cause, OF_ONE)), store)
    two = Box(plan, "two")
    install(two, store)
    assert two.specs[0]["compiled"] is None
    assert record(two, store)["sha256"] == hashlib.sha256(archive("2.36")).hexdigest()


def test_an_archive_that_does_not_arrive_whole_is_not_kept(plan: BoxPlan, store: Store) -> None:
    one = Box(plan, "one")
    one.meanwhile = lambda: setattr(one, "open", lambda path, mode: _damaged())
    with pytest.raises(BoxError, match=r"^one: .*-compiled\.tar: one has sha256"):
        install(one, store)
    two = Box(plan, "two")
    install(two, store)
    assert two.specs[0]["compiled"] is None and record(two, store)


def _damaged() -> Any:
    handle = io.BytesIO(b"half")
    handle.prefetch = lambda: None  # type: ignore[attr-defined]
    return handle


def test_what_a_runtime_is_made_of_is_got_once_for_all_boxes(plan: BoxPlan, store: Store, ready: list[str]) -> None:
    for name in ("one", "two", "three"):
        install(Box(plan, name), store)
    assert ready == [plan.runtimes[0].name]


def test_what_cannot_be_got_is_the_boxs_failure_and_asked_for_again(
    plan: BoxPlan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = runtime_install.prepare.ready

    def fail(*_: Any) -> list[Item]:
        raise FetchError("torch is nowhere.")

    monkeypatch.setattr(runtime_install.prepare, "ready", fail)
    one = Box(plan, "one")
    with pytest.raises(BoxError, match=r"^one: torch is nowhere\. Mend that on the controller"):
        install(one, store)
    assert one.specs == []
    monkeypatch.setattr(runtime_install.prepare, "ready", good)
    assert install(Box(plan, "two"), store) == [UV, WHEEL]


def test_with_nothing_to_install_nothing_is_done(plan: BoxPlan, ready: list[str]) -> None:
    box = Box(plan, "one")
    box.changes.runtimes = []
    assert list(installed._inner(box)) == []
    assert box.noops == ["all runtimes are complete"]
    assert (box.specs, box.brought, ready) == ([], [], [])


def test_a_box_forgets_only_what_the_controller_has(
    plan: BoxPlan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Item("torch-2.13.0+cu130-py3-none-any.whl", hashlib.sha256(b"torch").hexdigest(), 5, Made())
    store.write(here, io.BytesIO(b"torch"), "the test")
    forgotten: list[list[Item]] = []
    monkeypatch.setattr(runtime_install.prepare, "ready", lambda *_: [UV, here])
    monkeypatch.setattr(runtime_install.swarm, "forget", lambda box, items: forgotten.append(items))
    monkeypatch.setattr(runtime_install, "default_root", lambda: store.root)
    box = Box(plan, "one")
    runtime_install.install_all(cast(Any, box))
    assert len(box.specs) == 1 and forgotten == [[here]]
