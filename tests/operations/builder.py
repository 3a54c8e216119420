"""A box that builds, and a stack that is built, with all that is to be fetched for it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpufleet.errors import BoxError
from gpufleet.runtime import Runtime
from gpufleet.settings import Settings
from gpufleet.stacks import Stack
from gpufleet.wheelhouse.items import Item, Made
from gpufleet.wheelhouse.store import Store
from operations import building
from tests.unit.test_building import page
from tests.unit.test_sdist import PATCH as SERIES
from tests.unit.test_sdist import released

WHEEL = b"a wheel"
UV = b"uv"
TOOL = b"a build tool"


class Box:
    """A box that answers what a build answers.

    + fails: (cause, whether it would be the same on every like box)
    """

    def __init__(
        self,
        name: str,
        fails: tuple[str, bool] | None = None,
        glibc: str | None = "2.36",
        **settings: Any,
    ) -> None:
        self.said: list[str] = []
        self.calls: list[tuple[str, Any]] = []
        self.brought: list[Item] = []
        self.fails = fails
        client = SimpleNamespace(open_sftp=self.open_sftp)
        self.host = SimpleNamespace(name=name, log=self.said.append, connector=SimpleNamespace(client=client))
        facts = {"os": {"glibc": glibc} if glibc else None}
        self.plan = SimpleNamespace(settings=Settings.model_validate(settings), facts=facts)
        self.glibc = glibc

    @contextmanager
    def open_sftp(self) -> Iterator[Any]:
        self.sessions = getattr(self, "sessions", 0) + 1
        try:
            yield SimpleNamespace(open=self.open)
        finally:
            self.sessions -= 1

    def open(self, path: str, mode: str) -> Any:
        assert mode == "rb"
        self.opened = path
        handle = io.BytesIO(WHEEL)
        handle.prefetch = lambda: None  # type: ignore[attr-defined]
        return handle

    def call(self, verb: str, spec: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((verb, spec))
        if self.fails:
            raise BoxError(self.host.name, self.fails[0], "mend it", self.fails[1])
        digest = hashlib.sha256(WHEEL).hexdigest()
        wheel = {"filename": "pkg-1.0+x-py3-none-any.whl", "sha256": digest, "size": len(WHEEL), "glibc": self.glibc}
        return {"wheel": wheel, "seconds": 9}


def bring(box: Any, items: Any) -> None:
    box.brought += items


def built(box: Box, runtime: Runtime, store: Store) -> list[Item]:
    return building.built(cast(Any, box), runtime, store, bring)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def stack(tmp_path: Path, store: Store) -> Stack:
    """All that is to be fetched for it lies in the store."""
    files = tmp_path / "files"
    (files / "patches" / "pkg").mkdir(parents=True)
    (files / "patches" / "pkg" / "series").write_text("0001-two.patch\n")
    (files / "patches" / "pkg" / "0001-two.patch").write_text(SERIES)
    (files / "locks").mkdir()
    archive, digest = released(tmp_path / "pkg-1.0.tar.gz")
    tool = hashlib.sha256(TOOL).hexdigest()
    (files / "locks" / "pkg-build-py311.txt").write_text(
        f"tool==1.0 \\\n    --hash=sha256:{tool}\n    # tool-1.0-py3-none-any.whl {len(TOOL)}\n"
    )
    uv = {"version": "1.0", "sha256": hashlib.sha256(UV).hexdigest()}
    build = {"name": "pkg", "filename": archive.name, "sha256": digest, "patches": "pkg", "lock": "pkg-build"}
    uv_wheel = "uv-1.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    for name, data in {archive.name: archive.read_bytes(), "tool-1.0-py3-none-any.whl": TOOL, uv_wheel: UV}.items():
        store.write(Item(name, hashlib.sha256(data).hexdigest(), None, Made()), io.BytesIO(data), "the test")
    return page(files, build, uv=uv, lock="pkg")


def runtime(stack: Stack, toolkit: str | None = "13-0", archs: tuple[str, ...] = ("sm75",)) -> Runtime:
    return Runtime(stack, "3.11", toolkit, archs)
