"""Interrupted at any point and run again, it converges; and nothing half-installed is ever current."""

from __future__ import annotations

import json
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import state
from tests.lab.support import SmallLab, deploy, small_lab, started, wait_for

# Minutes of the default run, which has to end within forty: there unit tests stop an activation at each of its moments.
pytestmark = [pytest.mark.lab, pytest.mark.large]

BOX = "lab-1"
UNIT = "gpufleet-lab-tiny.service"
HOME = "/opt/gpufleet/instances/lab-tiny"


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("intr", 81, ["cpu-only"]) as found:
        yield found


@pytest.fixture(scope="module")
def folder(lab: SmallLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lab.folder(tmp_path_factory.mktemp("home"), {BOX: {"serve": ["lab-tiny"], "host": {}}})


class Run:
    """A deploy whose output is followed, so that it can be hit at a certain point."""

    def __init__(self, folder: Path) -> None:
        self.process = started(folder)
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def until(self, *words: str, seconds: float = 300) -> None:
        """Wait until a line of the output holds these words, or others of those."""
        deadline = time.monotonic() + seconds
        while not any(word in line for line in list(self.lines) for word in words):
            assert self.process.poll() is None and time.monotonic() < deadline, "".join(self.lines)
            time.sleep(0.02)

    def end(self) -> tuple[int, str]:
        code = self.process.wait(120)
        self.reader.join(10)
        return code, "".join(self.lines)


def kill(run: Run, lab: SmallLab) -> None:
    """SIGKILL of the controller: nothing is cleaned up, the box is left alone with what it was doing."""
    run.process.kill()
    assert run.end()[0] == -signal.SIGKILL


def interrupt(run: Run, lab: SmallLab) -> None:
    """Ctrl-C."""
    run.process.send_signal(signal.SIGINT)
    code, output = run.end()
    assert code == 130, output
    assert "Traceback" not in output, output


def power_cut(run: Run, lab: SmallLab) -> None:
    """The box loses its power; the deploy says so in one line, and ends with 1."""
    lab("kill", BOX)
    code, output = run.end()
    assert code == 1, output
    lines = [line for line in output.splitlines() if line.startswith(f"{BOX}: ")]
    assert len(lines) == 1 and "connection" in lines[0], output
    lab("start", BOX)


def assert_nothing_half_done(lab: SmallLab) -> None:
    """What is current is whole: its runtime and model have their marks, and every file is what the manifest says."""
    script = f"""
    current=$(readlink -e {HOME}/current) || exit 0
    for place in /opt/gpufleet/runtimes/* /opt/gpufleet/models/lab-tiny/*; do
      case "$place" in *.incoming) continue;; esac
      grep -qs "$place" $current/*.service && {{ test -f $place/.gpufleet-complete || echo "$place is not whole"; }}
    done
    for link in runtime model; do test -e $current/$link || echo "$current/$link is not whole"; done
    cat $current/manifest.json
    cd $current && sha256sum *.service serve.yaml serve.env start.json
    """
    said = lab.sh(BOX, script)
    assert "is not whole" not in said
    if said:
        manifest, end = json.JSONDecoder().raw_decode(said)
        assert {line.split()[1]: line.split()[0] for line in said[end:].split("\n") if line} == manifest["files"]


# In this order on one box. Where the controller alone is struck, the box may finish the step by itself: then the next
# run goes on behind it. The power cuts make sure that each later point is reached; after the last the box goes on by
# itself, and the next run waits for it or starts the instance.
STRIKES = [
    (["apt-get install g++"], kill),
    ([" files to come"], interrupt),
    (["installing uv"], power_cut),
    (["making the virtual environment"], power_cut),
    (["verifying vllm-0.27.1-cpu"], power_cut),
    (["putting lab-tiny in place"], power_cut),
    (["starting gpufleet-lab-tiny"], power_cut),
    (["is starting (", "waiting for another change on this box: gpufleet resume"], interrupt),
]


@pytest.mark.parametrize(("points", "strike"), STRIKES)
def test_struck(lab: SmallLab, folder: Path, points: list[str], strike: Callable[[Run, SmallLab], None]) -> None:
    run = Run(folder)
    try:
        run.until(*points)
        strike(run, lab)
    finally:
        if run.process.poll() is None:
            run.process.kill()
    assert_nothing_half_done(lab)


def test_then_it_converges_and_is_quiet(lab: SmallLab, folder: Path) -> None:
    done = deploy(folder)
    assert done.code == 0, done.output
    assert_nothing_half_done(lab)
    assert lab.sh(BOX, f"systemctl is-active {UNIT}") == "active"
    # One of each, and nothing beside it that a struck attempt has left.
    found = lab.sh(BOX, "cd /opt/gpufleet && ls -A runtimes models/lab-tiny")
    assert len(found.split()) == 4, found
    again = deploy(folder)
    assert (again.code, again.state(BOX)) == (0, "serving, nothing to do"), again.output


@pytest.mark.parametrize("strike", [kill, power_cut])
def test_an_upgrade_struck_at_its_start_converges(
    lab: SmallLab, folder: Path, strike: Callable[[Run, SmallLab], None]
) -> None:
    """A new release of an instance that serves already: the old one is there until the new one has passed its gate."""
    page = folder / "group_data" / "cpu.py"
    page.parent.mkdir(exist_ok=True)
    page.write_text(f"serve_args = {{'max-num-seqs': {3 if strike is kill else 4}}}\n")
    run = Run(folder)
    run.until("starting gpufleet-lab-tiny")
    strike(run, lab)
    assert_nothing_half_done(lab)
    done = deploy(folder)
    assert done.code == 0, done.output
    assert f"max-num-seqs: {3 if strike is kill else 4}" in lab.sh(BOX, f"cat {HOME}/current/serve.yaml")
    assert deploy(folder).state(BOX) == "serving, nothing to do"


def test_after_a_power_cut_the_box_serves_again_by_itself(lab: SmallLab, folder: Path) -> None:
    lab("kill", BOX)
    lab("start", BOX)
    address = state.load(lab.where).box(BOX).address

    def healthy() -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}:8000/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    wait_for(healthy, 180)
    done = deploy(folder)
    assert (done.code, done.state(BOX)) == (0, "serving, nothing to do"), done.output
