"""Output that nobody reads to its end: `| head`, `| true`. No traceback, and no failure of what was done."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.command import GPUFLEET, REPOSITORY
from tests.operations.rolling import rolling

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


@pytest.mark.parametrize("bad", [False, True], ids=["it passes", "it fails"])
@pytest.mark.parametrize("verb", ["rollback", "restart"])
def test_what_changes_something_goes_on_unread_and_ends_as_it_went(tmp_path: Path, verb: str, bad: bool) -> None:
    with rolling(tmp_path / "boxes", 1) as fleet:
        fleet.broken = {"box-1": {verb}} if bad else {}
        folder = fleet.folder(tmp_path)
        reading, writing = os.pipe()
        os.close(reading)
        command = [*GPUFLEET, verb, "inventory/home.py", "box-1"]
        done = subprocess.run(command, cwd=folder, stdout=writing, stderr=writing, check=False)
        os.close(writing)
        assert (done.returncode, fleet.verbs("box-1")) == (int(bad), ["lock", verb, "lock"])
