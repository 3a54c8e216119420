"""A first run shows one screen before anything is changed: before the question, and where none is asked."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet import first_run_files
from gpufleet.first_run_files import Coming
from gpufleet.first_run_time import Rates
from gpufleet.settings import Fetch
from operations import first_run
from tests.command import PYINFRA, deploy
from tests.operations.boxes import Boxes, boxes
from tests.operations.rolling import OLD, rolling
from tests.operations.three import CPU, TURING

FIRST = "First run on"
SERVES = {
    "cpu_1": {"serve": ["qwen3-0.6b"]},
    "turing_1": {"serve": ["qwen3.8-27b-awq"], "stack": "vllm-0.27.1-sm75", "host": {}},
}


@pytest.fixture
def two() -> Iterator[Boxes]:
    with boxes({"cpu-1": CPU, "turing-1": TURING}) as found:
        yield found


def test_a_dry_run_shows_what_comes_from_where_and_changes_nothing(two: Boxes, tmp_path: Path) -> None:
    done = deploy(two.folder(tmp_path, **SERVES), "--dry", GPUFLEET_STORE=str(tmp_path / "store"))
    assert done.returncode == 5, done.stdout
    screen = done.stdout[done.stdout.index(FIRST) :]
    assert f"{FIRST} 2 boxes: nothing was changed there yet but the kit" in screen
    for told in (
        "  box     cpu-1\n",
        "  login   root; host key known\n",
        "  stack   vllm-0.27.1-sm75, CUDA toolkit 13.0, kernels compiled on the first box of a kind: 11.7 GiB\n",
        "  serves  qwen3-0.6b on the CPU, port 8000: its files are linked in ",
        "once, by this controller: ",
        "at 10 MB/s (assumed: nothing was fetched here before)",
        "to the boxes   ",
        "until the last box serves, beside what apt fetches",
    ):
        assert told in screen, told
    assert "here already" not in screen, "the store is empty"
    assert two.asked == [] and not (tmp_path / "store").exists()


def test_it_stands_right_before_the_question_and_a_no_changes_nothing(two: Boxes, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"no\n")
    done = subprocess.run(
        [*PYINFRA, "inventory/home.py", "deploy.py"],
        cwd=two.folder(tmp_path, **SERVES), env={**os.environ, "PYINFRA_PROGRESS": "off"}, stdin=theirs,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    order = [done.stdout.index(words) for words in ("Ready: deploy.py", "Detected changes:", FIRST, "Press enter")]
    assert order == sorted(order) and done.stdout.count(FIRST) == 1, done.stdout
    assert two.asked == []


def test_it_is_of_the_new_boxes_only_and_not_shown_twice(tmp_path: Path) -> None:
    with rolling(tmp_path / "boxes", serving=OLD, fresh=None) as fleet:
        folder = fleet.folder(tmp_path)
        done = deploy(folder, "-y")
        assert done.returncode == 0, done.stdout
        fresh = fleet.boxes.facts["fresh"]
        assert FIRST not in done.stdout, "runtime and model were there"
        fleet.boxes.facts["fresh"] = {**fresh, "runtimes": {}, "models": {}, "instances": {}}
        done = deploy(folder, "--dry")
        assert f"{FIRST} a box" in done.stdout and "  box     fresh\n" in done.stdout, done.stdout
        assert "  box     serving" not in done.stdout


def test_boxes_with_nothing_to_do_have_no_screen(two: Boxes, tmp_path: Path) -> None:
    done = deploy(two.folder(tmp_path), "-y")
    assert done.returncode == 0 and FIRST not in done.stdout, done.stdout


# The lines on the run as a whole

GIB = 1 << 30
HERE, BOXES = Fetch(), Fetch(by="boxes")


@pytest.mark.parametrize(
    ("found", "rates", "fetch", "lines"),
    [
        (
            Coming(lacking=3 * GIB), Rates(2e6, measured=True), HERE,
            ["from outside   3.0 GiB, once, by this controller: about 30 min at 2 MB/s (as measured at the "
             "last fetch)"],
        ),
        (
            Coming(lacking=GIB, unknown=["a", "b"]), Rates(), BOXES,
            ["from outside   1.0 GiB and 2 files of unknown size, once, by the boxes, each file by one of them: about "
             "2 min at 10 MB/s (assumed: nothing was fetched here before)"],
        ),
        (Coming(have=GIB), Rates(), HERE, ["from outside   nothing", "here already   1.0 GiB in /store"]),
        (Coming(), Rates(), HERE, []),
        (
            Coming(lacking=GIB, have=GIB), Rates(), Fetch(offline=True),
            ["from outside   nothing", "here already   1.0 GiB in /store",
             "too little     1.0 GiB lack in /store, and fetch.offline is set: the deploy says which"],
        ),
    ],
    ids=["measured", "by boxes", "all is here", "nothing", "offline"],
)  # fmt: skip
def test_what_comes_from_outside(found: Coming, rates: Rates, fetch: Fetch, lines: list[str]) -> None:
    assert list(first_run.outside(found, rates, [fetch], Path("/store"))) == lines


@pytest.mark.parametrize(("fetch", "said"), [(HERE, True), (BOXES, False)], ids=["by it", "by the boxes"])
def test_a_controller_without_the_room_is_told_so_before(
    monkeypatch: pytest.MonkeyPatch, fetch: Fetch, said: bool
) -> None:
    monkeypatch.setattr(first_run_files, "free", lambda root: GIB)
    found = list(first_run.outside(Coming(lacking=2 * GIB), Rates(), [fetch], Path("/store")))
    assert ("too little     1.0 GiB are free where /store is" in found[-1]) == said
