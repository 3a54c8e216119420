"""Output that nobody reads to its end: `| head`, `| true`. No traceback, and no failure of what was done."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpufleet.commands import reach
from tests.command import GPUFLEET, REPOSITORY
from tests.operations.fleet_of_two import Boxes, boxes, gpufleet
from tests.operations.test_verbs_on_a_box import working

__all__ = ["boxes"]

PAIRS = str(REPOSITORY / "lab" / "topologies" / "quad-3090-two-pairs.json")
PLAN = ("plan", "--topology", PAIRS, "--model", "qwen3.8-27b-awq")


@pytest.mark.parametrize("more", [(), ("--json",), ("--explain", "max-model-len")])
def test_a_plan_that_nobody_reads_ends_quietly(more: tuple[str, ...], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with (tmp_path / "said").open("wb") as said:
        done = subprocess.run([*GPUFLEET, *PLAN, *more], cwd=REPOSITORY, stdout=writing, stderr=said, check=False)
    os.close(writing)
    assert (done.returncode, (tmp_path / "said").read_text()) == (141, "")


def test_a_rollback_that_nobody_watches_is_done_and_ends_as_it_went(
    boxes: Boxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*arguments: object, **more: object) -> None:
        raise BrokenPipeError

    boxes.answers["job"] = working
    monkeypatch.setattr(reach.click, "echo", closed)
    assert gpufleet("rollback", "one").exit_code == 0
    assert [asked["spec"]["instance"] for _, _, asked in boxes.called] == ["qwen", "ornith"]
