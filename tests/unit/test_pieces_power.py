"""Power cuts while a large file is mended: the next run finishes, and takes nothing wrong for whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostkit import pieces, pull, store
from tests.unit.piece_box import DATA, FILE, NAME, PIECE, SHA, Box, Server, flipped, made, serving


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    return made(tmp_path, monkeypatch)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving(monkeypatch) as found:
        yield found


class Cut(BaseException):
    """The power is gone."""


CALLS = [(os, "replace"), (os, "unlink"), (os, "link"), (os, "fsync"), (os, "fchmod"), (pieces, "write")]


class Power:
    """Lets so many calls through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 10**9
        for module, name in CALLS:
            monkeypatch.setattr(module, name, self.counted(getattr(module, name)))

    def counted(self, real: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Cut
            return real(*arguments, **more)

        return call


def deploy(box: Box, server: Server) -> None:
    """As a deploy has it: a look, then what lacks from another box."""
    found = box.look(check=True, file={"at": ["m/r1/" + NAME]})
    if SHA not in found["have"]:
        assert pull.run({"files": [{**FILE, "urls": [server.url]}], "peer": True})["got"] == [SHA]


@pytest.mark.parametrize("case", ["nothing", "damaged", "linked", "elsewhere", "bad part"])
def test_the_power_is_cut_at_every_step(
    case: str, tmp_path: Path, box: Box, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    power = Power(monkeypatch)
    cuts = 0
    for step in range(200):
        shutil.rmtree(box.models, ignore_errors=True)
        if case in ("damaged", "linked"):
            box.put(flipped(1500, 7500))
        if case == "linked":
            (box.models / "m/r1").mkdir(parents=True)
            os.link(box.path, box.models / "m/r1" / NAME)
        if case == "elsewhere":
            box.put(flipped(1500, 7500), box.models / "m/r1" / NAME)
        if case == "bad part":
            box.put(flipped(1500)[:4000], box.path.with_name(NAME + ".part"))
        server.asked.clear()
        power.left = step
        try:
            deploy(box, server)
        except Cut:
            cuts += 1
        else:
            break
        power.left = 10**9
        if store.is_whole(str(box.path), len(DATA)) and case not in ("damaged", "linked"):
            assert box.path.read_bytes() == DATA
        deploy(box, server)
        assert box.whole(), step
        if case in ("damaged", "linked", "elsewhere"):
            assert sum(server.lengths()) <= 3 * PIECE, (step, server.asked)
    else:
        pytest.fail("it does not end")
    assert cuts >= 3
