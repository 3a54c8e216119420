"""What a run that changes nothing may cost, in counts that no clock has a say in.

Each figure is what it was when it was written down, and a little: what needs more says so by failing here.
"""

from __future__ import annotations

import pstats
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import PYINFRA, REPOSITORY, deploy, run
from tests.operations.boxes import Boxes, boxes
from tests.operations.rolling import rolling
from tests.operations.three import CPU, MACHINE, three
from tests.unit.fleets import cpu_facts, gpu_facts

__all__ = ["three"]  # the fixture

# A connection by password is six: TCP, banners, keys, the change to them, the service, the password. Then a channel
# and the command, whose answer comes with the box's word that it began it.
ROUND_TRIPS = 8
BYTES = 2800
CALLS = 5_500  # of Python functions for one box more, of which paramiko's are a third
OUR_CALLS = 1_000
CHANGE_CALLS = 5  # of the kit, to bring an instance to a new release: the lock taken and given back, with it
# What costs start-up time, and has no part in a run that changes nothing.
UNNEEDED = {
    "rich", "httpx", "requests", "huggingface_hub", "pynvml", "urllib.request", "http.client",
    "gpufleet.wheelhouse.index", "gpufleet.wheelhouse.prepare", "gpufleet.wheel", "gpufleet.commands", "gpufleet.cli",
    "operations.runtime_install", "operations.swarm", "operations.building", "operations.errands", "hostkit", "lab",
}  # fmt: skip
OURS = 126  # modules of gpufleet and operations, of which a third are rules
START = "from operations.start import main; main()"


@pytest.fixture
def one() -> Iterator[Boxes]:
    with boxes({"cpu-1": CPU}) as found:
        yield found


def known(found: Boxes, path: Path) -> Path:
    """A folder in which a first run has been made; the counts begin after it."""
    folder = found.folder(path)
    assert deploy(folder, "-y").returncode == 0
    for counts in (found.logins, found.looks, found.wire):
        counts.clear()  # type: ignore[attr-defined]
    found.asked.clear()
    found.subsystems.clear()
    return folder


def test_one_connection_one_command_no_file_transfer(three: Boxes, tmp_path: Path) -> None:
    done = deploy(known(three, tmp_path), "-y")
    assert done.returncode == 0, done.stdout
    once = dict.fromkeys(three.facts, 1)
    assert (three.logins, three.looks, three.asked, three.subsystems) == (once, once, [], [])
    for name, count in three.wire.items():
        assert count.connections == 1, name
        assert count.round_trips <= ROUND_TRIPS, name
        assert count.to_box <= BYTES, name


def test_a_change_costs_one_process_of_the_kit_and_few_calls(tmp_path: Path) -> None:
    """Beside the look, and what runs as jobs. Calls that are made at once would have one each."""
    with rolling(tmp_path / "boxes", 2) as fleet:
        assert deploy(fleet.folder(tmp_path), "-y").returncode == 0
        found = fleet.boxes
    for name in ("box-1", "box-2"):
        assert found.processes.count(name) == 1
        assert 4 <= [box for box, _ in found.asked].count(name) <= CHANGE_CALLS, found.asked


def test_a_file_transfer_would_be_seen(one: Boxes, tmp_path: Path) -> None:
    """That the zero above is counted."""
    folder = known(one, tmp_path)
    (folder / "a").write_text("a")
    run(folder, "-y", "inventory/home.py", "files.put", "src=a", "dest=/a")
    assert one.subsystems == [("cpu-1", "sftp")]


@pytest.mark.parametrize("start", [PYINFRA[-1], START], ids=["pyinfra", "gpufleet deploy"])
def test_what_is_not_needed_is_not_imported(one: Boxes, tmp_path: Path, start: str) -> None:
    folder = known(one, tmp_path)
    program = [sys.executable, "-X", "importtime", "-c", start]
    done = run(folder, "-y", "inventory/home.py", "deploy.py", program=program)
    assert done.returncode == 0, done.stdout
    names = re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", done.stdout, re.MULTILINE)
    assert "pyinfra.api" in names
    assert {name for name in names if any(f"{name}.".startswith(f"{bad}.") for bad in UNNEEDED)} == set()
    assert len([name for name in names if name.startswith(("gpufleet", "operations"))]) <= OURS
    if start == START:
        assert "invoke" not in {name.split(".")[0] for name in names}


def calls(folder: Path) -> dict[str, int]:
    """How often Python functions were called in a run, by file."""
    found = folder / "profile"
    program = [sys.executable, "-m", "cProfile", "-o", str(found), str(folder / "start.py")]
    (folder / "start.py").write_text("from pyinfra_cli.main import main\nmain()\n")
    done = subprocess.run(
        [*program, "-y", "inventory/home.py", "deploy.py"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    by_file: dict[str, int] = {}
    for (file, _, _), (_, count, *_) in pstats.Stats(str(found)).stats.items():  # type: ignore[attr-defined]
        by_file[file] = by_file.get(file, 0) + count
    return {file: count for file, count in by_file.items() if file != "~"}  # built-in functions


def test_calls_for_one_box_more(one: Boxes, tmp_path: Path) -> None:
    few, many = 2, 8
    found = {}
    for count in (few, many):
        with boxes({f"cpu-{number}": cpu_facts(**MACHINE) for number in range(count)}) as fleet:
            (tmp_path / str(count)).mkdir()
            found[count] = calls(known(fleet, tmp_path / str(count)))
    more = {file: (times - found[few].get(file, 0)) / (many - few) for file, times in found[many].items()}
    ours = sum(times for file, times in more.items() if file.startswith(str(REPOSITORY)) and "/.venv/" not in file)
    assert 0 < ours <= OUR_CALLS, sorted(more.items(), key=lambda item: -item[1])[:20]
    assert sum(more.values()) <= CALLS, sorted(more.items(), key=lambda item: -item[1])[:20]


def test_a_box_with_cards_costs_no_more_on_the_wire(tmp_path: Path) -> None:
    with boxes({"gpu-1": gpu_facts(**MACHINE), "cpu-1": CPU}) as found:
        assert deploy(known(found, tmp_path), "-y").returncode == 0
        assert found.wire["gpu-1"].to_box == found.wire["cpu-1"].to_box
        assert found.wire["gpu-1"].round_trips <= ROUND_TRIPS


def test_a_look_that_ended_before_it_was_asked_for_is_not_made_again(tmp_path: Path) -> None:
    """Boxes begin their looks when they are connected; with one at a time the first has long answered."""
    with boxes({f"cpu-{number}": CPU for number in range(3)}) as found:
        assert deploy(known(found, tmp_path), "-y", "--parallel", "1").returncode == 0
        assert set(found.looks.values()) == {1}
