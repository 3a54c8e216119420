"""Downloads beside apt: files come while packages are installed, and models while runtimes are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest
from gevent.event import Event

from gpufleet.errors import BoxError
from gpufleet.plan import BoxPlan
from gpufleet.wheelhouse.items import Item, Made
from operations import ahead, model_put, once, runtime, runtime_install, toolkit
from operations.callbacks import Callbacks
from operations.run import session
from tests.unit.fleets import SHA
from tests.unit.test_runtime_spec import planned

WHEEL = Item("torch-2.13.0+cu130-cp311-cp311-manylinux_2_28_x86_64.whl", SHA, 100, Made())
LONG = 20  # seconds: what waits for the other for so long would wait for ever


class Box:
    """+ meanwhile: what happens on the box, by verb, before it answers"""

    def __init__(self, plan: BoxPlan, name: str = "one", packages: tuple[str, ...] = ("gcc",)) -> None:
        self.plan = plan
        self.changes = SimpleNamespace(
            packages=list(packages), apt=[], runtimes=list(plan.runtimes), models=list(plan.models)
        )
        self.asked: list[str] = []
        self.refused = False
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.host = SimpleNamespace(name=name, log=lambda line: None, noop=lambda line: None)

    def call(self, verb: str, spec: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        self.asked.append(verb)
        if verb == "apt":
            if self.refused:
                raise BoxError("one", "apt knows no package gcc", "mend it")
            more["progress"]({"installing": True})
        self.meanwhile.get(verb, lambda: None)()
        return {"compiled": None}

    def command(self, action: Callable[[], Any]) -> Iterator[None]:
        action()
        return iter([])

    def apt(self) -> None:
        list(toolkit.packages._inner(box=self))

    def install(self) -> None:
        list(runtime.installed._inner(box=self))


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(planned(tmp_path))


class Files:
    """What is brought: nothing comes before `line` is set."""

    def __init__(self) -> None:
        self.line, self.begun, self.models = Event(), Event(), Event()
        self.brought: list[str] = []
        self.fails: Exception | None = None

    def bring(self, box: Any, items: list[Item], *_: Any) -> None:
        self.begun.set()
        assert self.line.wait(LONG), "the line stays down"
        if self.fails:
            raise self.fails
        self.brought += [item.filename for item in items]

    def model(self, *_: Any) -> list[Item]:
        self.models.set()
        return []


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """Each test is a run of its own."""
    found = Files()
    monkeypatch.setattr(ahead, "_coming", {})
    monkeypatch.setattr(session, "ending", [])
    monkeypatch.setattr(once, "_failed", {})
    for module in (runtime_install, model_put):
        monkeypatch.setattr(module, "_ready", {})
    monkeypatch.setattr(model_put, "_failed", {})
    monkeypatch.setattr(runtime_install, "_brought", {})
    monkeypatch.setattr(runtime_install.prepare, "ready", lambda *_: [WHEEL])
    monkeypatch.setattr(runtime_install.prepare, "addresses", lambda *_: {})
    monkeypatch.setattr(runtime_install.swarm, "bring", found.bring)
    monkeypatch.setattr(runtime_install.swarm, "forget", lambda *_: None)
    monkeypatch.setattr(model_put.model_files, "ready", found.model)
    yield found
    for coming in ahead._coming.values():
        gevent.killall([coming.runtimes, coming.models])


def test_files_come_while_packages_are_installed_and_once(box: Box, files: Files) -> None:
    files.line.set()
    box.meanwhile["apt"] = lambda: files.begun.wait(LONG) or pytest.fail("nothing came beside apt")
    box.apt()
    box.install()
    assert box.asked == ["apt", "job"] and files.brought == [WHEEL.filename]


def test_a_runtime_waits_for_its_files(box: Box, files: Files) -> None:
    box.apt()
    installing = gevent.spawn(box.install)
    assert files.begun.wait(LONG)
    gevent.sleep(0)
    assert box.asked == ["apt"] and not installing.ready()
    files.line.set()
    installing.get(timeout=LONG)
    assert box.asked == ["apt", "job"] and files.brought == [WHEEL.filename]


def test_models_are_got_while_the_runtime_is_installed_after_its_files(box: Box, files: Files) -> None:
    assert box.changes.models
    box.apt()
    assert files.begun.wait(LONG)
    gevent.sleep(0)
    assert not files.models.is_set(), "they share the line"
    files.line.set()
    box.meanwhile["job"] = lambda: files.models.wait(LONG) or pytest.fail("no model came beside the runtime")
    box.install()


def test_what_did_not_come_is_told_by_who_needs_it(box: Box, files: Files) -> None:
    files.fails = BoxError("one", "the line broke", "mend it")
    files.line.set()
    box.meanwhile["apt"] = lambda: files.begun.wait(LONG)
    box.apt()
    with pytest.raises(BoxError, match="the line broke"):
        box.install()
    assert box.asked == ["apt"] and not files.models.is_set()


def test_nothing_more_comes_to_a_box_that_failed_and_the_other_goes_on(tmp_path: Path, files: Files) -> None:
    plan = planned(tmp_path)
    boxes = [Box(plan, name) for name in ("one", "two")]
    for each in boxes:
        each.apt()
    assert files.begun.wait(LONG)
    gevent.sleep(0)
    Callbacks.operation_host_error(
        cast(Any, SimpleNamespace(get_op_meta=lambda _: SimpleNamespace(names={"Host settings"}))),
        cast(Any, boxes[0].host),
        "hash",
    )
    ahead._coming["one"].models.join(LONG)
    files.line.set()
    ahead._coming["two"].models.join(LONG)
    assert files.brought == [WHEEL.filename]


def test_the_end_of_the_run_ends_them(box: Box, files: Files) -> None:
    box.apt()
    assert files.begun.wait(LONG)
    session.end()
    coming = ahead._coming["one"]
    gevent.joinall([coming.runtimes, coming.models], LONG)
    files.line.set()
    gevent.sleep(0)
    assert coming.runtimes.ready() and coming.models.ready() and files.brought == []


def test_a_box_that_lacks_only_packages_has_nothing_begun(box: Box, files: Files) -> None:
    box.changes.runtimes, box.changes.models = [], []
    box.apt()
    gevent.sleep(0)
    assert box.asked == ["apt"] and not files.begun.is_set() and session.ending == []


def test_what_apt_refuses_brings_nothing(box: Box, files: Files) -> None:
    box.refused = True
    with pytest.raises(BoxError, match="apt knows no package"):
        box.apt()
    gevent.sleep(0)
    assert not files.begun.is_set() and session.ending == []
