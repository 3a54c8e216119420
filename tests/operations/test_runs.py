"""Runs over several boxes: what is looked at when, who stops whom, what is kept of each."""

from __future__ import annotations

import copy
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command import GPUFLEET, PYINFRA, deploy, run
from tests.operations.boxes import Boxes, boxes
from tests.unit.fleets import cpu_facts, gpu_facts

MACHINE: dict[str, Any] = {
    "cpu": cpu_facts()["cpu"],
    "memory": {"total_mib": 65536, "available_mib": 60000, "swap_mib": 0},
}
TURING = gpu_facts(**MACHINE)
AMPERE = gpu_facts((8, 6), link="PHB", **MACHINE)
CPU = cpu_facts(**MACHINE)
ASKS_FOR_GPUS = {"expect": {"gpus": 2}}  # on a box without: an error
LEFT_OUT = {**ASKS_FOR_GPUS, "rollout": {"on_refusal": "leave out"}}


@pytest.fixture
def three() -> Iterator[Boxes]:
    with boxes({"turing-1": TURING, "ampere-1": AMPERE, "cpu-1": CPU}) as found:
        yield found


def state(output: str, box: str) -> str:
    """The last column of the report's row."""
    (row,) = [line for line in output.splitlines() if re.match(rf"{box}\s", line)]
    return re.split(r"\s{2,}", row.rstrip())[-1]


def line(output: str, box: str) -> str:
    """The report's one line about what is wrong with a box."""
    (found,) = [line for line in output.splitlines() if line.startswith(f"{box}: ")]
    return found


# The first look


def test_the_first_run_knows_groups_by_trait_and_connects_once(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    done = deploy(folder, "-y", "--limit", "sm75")
    assert done.returncode == 0, done.stdout
    assert state(done.stdout, "turing-1") == "nothing to do"
    assert "[ampere-1]" not in done.stdout and "[cpu-1]" not in done.stdout
    # all had to be looked at to tell; the one that is meant went on with the connection and the answer it had
    assert three.logins == three.looks == {"turing-1": 1, "ampere-1": 1, "cpu-1": 1}
    again = deploy(folder, "-y", "--limit", "pcie")
    assert again.returncode == 0 and state(again.stdout, "ampere-1") == "nothing to do", again.stdout
    assert three.logins == three.looks == {"turing-1": 1, "ampere-1": 2, "cpu-1": 1}


def test_a_run_for_one_box_looks_at_no_other(three: Boxes, tmp_path: Path) -> None:
    done = deploy(three.folder(tmp_path), "-y", "--limit", "cpu-1")
    assert done.returncode == 0, done.stdout
    assert three.logins == {"cpu-1": 1}


def test_traits_are_true_groups_of_pyinfra(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    assert deploy(folder, "-y").returncode == 0
    done = run(folder, "--limit", "gpus2", "--exclude", "pcie", "inventory/home.py", "exec", "--", "true")
    assert "[turing-1]" in done.stdout and "[ampere-1]" not in done.stdout and "[cpu-1]" not in done.stdout


def test_a_group_of_ones_own_may_be_computed_above_the_call_or_written_below(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    file = folder / "inventory" / "home.py"
    text = file.read_text(encoding="utf-8")
    call = text.rindex("globals()")
    computed = 'large = [name for name, _ in boxes if name != "cpu-1"]\n'
    file.write_text(f'{text[:call]}{computed}{text[call:]}small = ["cpu-1"]\n', encoding="utf-8")
    done = deploy(folder, "-y", "--limit", "large", "--exclude", "ampere-1")
    assert done.returncode == 0 and state(done.stdout, "turing-1") == "nothing to do", done.stdout
    done = deploy(folder, "-y", "--limit", "small")
    assert done.returncode == 0 and state(done.stdout, "cpu-1") == "nothing to do", done.stdout
    assert three.logins == {"turing-1": 1, "cpu-1": 1}
    file.write_text(f'{text}small = ["cpu-2"]\n', encoding="utf-8")
    done = deploy(folder, "-y", "--limit", "small")
    assert done.returncode == 2 and "'cpu-2' is no box; did you mean 'cpu-1'?" in done.stdout, done.stdout
    assert three.logins == {"turing-1": 1, "cpu-1": 1}


def test_to_show_the_inventory_nothing_is_connected_to(three: Boxes, tmp_path: Path) -> None:
    done = run(three.folder(tmp_path), "inventory/home.py", "debug-inventory")
    assert done.returncode == 0 and "turing-1" in done.stdout, done.stdout
    assert three.logins == {}


def test_a_trait_that_no_box_has_ends_the_run_after_the_look(three: Boxes, tmp_path: Path) -> None:
    done = deploy(three.folder(tmp_path), "-y", "--limit", "sm70")
    assert done.returncode == 2, done.stdout
    assert "--limit 'sm70' names no box and no group" in done.stdout and "Traceback" not in done.stdout


def test_a_misspelt_word_beside_a_trait_is_said_before_any_look(three: Boxes, tmp_path: Path) -> None:
    done = deploy(three.folder(tmp_path), "-y", "--limit", "sm75", "--exclude", "turing-l")
    assert done.returncode == 2 and "--exclude 'turing-l'" in done.stdout, done.stdout
    assert three.logins == {}


def test_one_that_is_off_at_the_first_look_is_named_and_left_out_of_groups(three: Boxes, tmp_path: Path) -> None:
    three.off.add("ampere-1")
    done = deploy(three.folder(tmp_path), "-y", "--limit", "sm75")
    assert done.returncode == 0 and state(done.stdout, "turing-1") == "nothing to do", done.stdout
    assert "gpufleet: ampere-1 is in no group by trait, since it could not be looked at" in done.stdout


# A box that fails


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("option", ["-y", "--dry"])
def test_an_unreachable_box_stops_no_other(three: Boxes, tmp_path: Path, option: str, known: bool) -> None:
    folder = three.folder(tmp_path)
    if known:
        assert deploy(folder, "-y").returncode == 0
    three.off.add("ampere-1")
    before = dict(three.logins)
    done = deploy(folder, option)
    assert done.returncode == 1, done.stdout
    assert state(done.stdout, "turing-1") == state(done.stdout, "cpu-1") == "nothing to do"
    assert state(done.stdout, "ampere-1") == "failed" and "is on" in line(done.stdout, "ampere-1")
    assert {name: count - before.get(name, 0) for name, count in three.logins.items() if name != "ampere-1"} == {
        "turing-1": 1,
        "cpu-1": 1,
    }


def test_an_unreachable_box_stops_no_other_where_changes_are_confirmed(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    three.off.add("ampere-1")
    ours, theirs = pty.openpty()
    os.write(ours, b"\n")  # the one question: whether to execute
    done = subprocess.run(
        [*PYINFRA, "inventory/home.py", "deploy.py"],
        cwd=folder, env={**os.environ, "PYINFRA_PROGRESS": "off", "COLUMNS": "160"}, stdin=theirs,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 1 and "continue?" not in done.stdout, done.stdout
    assert state(done.stdout, "turing-1") == state(done.stdout, "cpu-1") == "nothing to do"


def test_a_box_whose_look_fails_stops_no_other(three: Boxes, tmp_path: Path) -> None:
    three.facts["ampere-1"] = {**AMPERE, "os": {}, "errors": [{"source": "system", "message": "no such file"}]}
    done = deploy(three.folder(tmp_path), "-y")
    assert done.returncode == 1 and state(done.stdout, "turing-1") == "nothing to do", done.stdout
    assert "the probe could not read os (system: no such file)" in line(done.stdout, "ampere-1")


SOON = "from operations import remote; remote.LOOK_SECONDS = 2; "


@pytest.mark.parametrize("known", [False, True])
def test_a_box_that_hangs_stops_no_other(three: Boxes, tmp_path: Path, known: bool) -> None:
    folder = three.folder(tmp_path)
    if known:
        assert deploy(folder, "-y").returncode == 0
    three.hung.add("ampere-1")
    program = [sys.executable, "-c", f"import pyinfra_cli; {SOON}from pyinfra_cli.main import main; main()"]
    done = run(folder, "-y", "inventory/home.py", "deploy.py", program=program)
    assert done.returncode == 1 and state(done.stdout, "turing-1") == "nothing to do", done.stdout
    assert "no answer within 2 s" in line(done.stdout, "ampere-1")
    program = [sys.executable, "-c", f"import pyinfra_cli; {SOON}from gpufleet.cli import main; main()"]
    done = run(folder, "discover", "inventory/home.py", program=program)
    assert done.returncode == 1 and "no answer within 2 s" in line(done.stdout, "ampere-1"), done.stdout


@pytest.mark.parametrize(
    "command",
    [[*PYINFRA, "-y", "inventory/home.py", "deploy.py"], [*GPUFLEET, "discover", "inventory/home.py"]],
    ids=["deploy", "discover"],
)
def test_interrupted_in_the_first_look(three: Boxes, tmp_path: Path, command: list[str]) -> None:
    folder = three.folder(tmp_path)
    three.hung.add("ampere-1")
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        while not three.looks.get("ampere-1"):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and "Traceback" not in output, output
    assert "interrupted" in output


# A box that is refused


@pytest.mark.parametrize("option", ["-y", "--dry"])
def test_an_error_on_one_box_refuses_the_whole_run(three: Boxes, tmp_path: Path, option: str) -> None:
    done = deploy(three.folder(tmp_path, cpu_1=ASKS_FOR_GPUS), option)
    assert done.returncode == 3, done.stdout
    assert "gpufleet: the run is refused because of cpu-1, and no box was changed" in done.stdout
    assert "[GF121 expected-gpus]" in line(done.stdout, "cpu-1") and state(done.stdout, "cpu-1") == "refused"
    for name in ("turing-1", "ampere-1"):
        assert state(done.stdout, name) == "not touched: the run was refused"
    assert "Beginning operation run" not in done.stdout and "Traceback" not in done.stdout


def test_a_refusal_and_a_box_that_is_off(three: Boxes, tmp_path: Path) -> None:
    three.off.add("ampere-1")
    done = deploy(three.folder(tmp_path, cpu_1=ASKS_FOR_GPUS), "-y")
    assert done.returncode == 3, done.stdout
    assert state(done.stdout, "ampere-1") == "failed" and state(done.stdout, "cpu-1") == "refused"


@pytest.mark.parametrize("option", ["-y", "--dry"])
def test_by_setting_a_refused_box_is_left_out(three: Boxes, tmp_path: Path, option: str) -> None:
    done = deploy(three.folder(tmp_path, cpu_1=LEFT_OUT), option)
    assert done.returncode == 1, done.stdout
    assert "[GF121 expected-gpus]" in line(done.stdout, "cpu-1") and state(done.stdout, "cpu-1") == "refused"
    assert state(done.stdout, "turing-1") == state(done.stdout, "ampere-1") == "nothing to do"


def test_leaving_out_for_one_run(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path, cpu_1=ASKS_FOR_GPUS)
    done = deploy(folder, "-y", "--data", 'rollout={"on_refusal": "leave out"}')
    assert done.returncode == 1 and state(done.stdout, "turing-1") == "nothing to do", done.stdout


def test_leaving_out_is_a_setting_of_the_box_that_is_refused(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path, cpu_1=LEFT_OUT, turing_1={"expect": {"nvlink": 4}})
    done = deploy(folder, "-y")
    assert done.returncode == 3 and "because of turing-1, cpu-1" in done.stdout, done.stdout


def test_settings_that_do_not_fit_are_said_of_all_boxes_at_once(three: Boxes, tmp_path: Path) -> None:
    twice = {"serve": ["qwen3-0.6b", "qwen3-0.6b"]}
    done = deploy(three.folder(tmp_path, turing_1=twice, ampere_1=twice), "-y")
    assert done.returncode == 2, done.stdout
    assert all(f"{name}: serve: two instances are called" in done.stdout for name in ("turing-1", "ampere-1"))


# Hardware that changed


def test_changed_hardware_is_refused_until_it_is_discovered(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    assert deploy(folder, "-y").returncode == 0
    kept = three.cached(folder, "turing-1")
    three.facts["turing-1"] = gpu_facts(
        link="NV1", **{**MACHINE, "memory": {"total_mib": 32768, "available_mib": 1, "swap_mib": 0}}
    )
    for option in ("--dry", "-y"):
        done = deploy(folder, option)
        assert done.returncode == 3, done.stdout
        said = line(done.stdout, "turing-1")
        assert "RAM: 65536 MiB before, 32768 MiB now; 0-1: NV2 before, NV1 now [GF109 hardware-changed]" in said
        assert "gpufleet discover inventory/home.py --limit" in said
        assert state(done.stdout, "cpu-1") == "not touched: the run was refused"
    assert three.cached(folder, "turing-1") == kept
    found = run(tmp_path, "discover", "inventory/home.py", "--limit", "turing-1", program=GPUFLEET)
    assert found.returncode == 0, found.stdout
    assert "turing-1: 0-1: NV2 before, NV1 now" in found.stdout
    assert three.cached(folder, "turing-1")["links"] == {"0-1": "NV1"}
    done = deploy(folder, "-y")
    assert done.returncode == 0 and state(done.stdout, "turing-1") == "nothing to do", done.stdout


def test_what_passes_does_not_rewrite_the_facts(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    assert deploy(folder, "-y").returncode == 0
    path = folder / "inventory/facts/home/turing-1.json"
    before = path.read_text()
    busy = copy.deepcopy(TURING)
    busy.update(
        at="2030-01-01T00:00:00Z",
        ports={"22": {"pid": 4, "command": None, "unit": None}},
        memory={"total_mib": 65536, "available_mib": 1, "swap_mib": 0},
    )
    busy["gpus"][0]["memory_used_mib"] = 17
    three.facts["turing-1"] = busy
    assert deploy(folder, "-y").returncode == 0
    assert run(folder, "discover", "inventory/home.py", program=GPUFLEET).returncode == 0
    assert path.read_text() == before
    three.facts["turing-1"] = {**busy, "driver": {**busy["driver"], "version": "580.200.01", "module": "580.200.01"}}
    assert deploy(folder, "-y").returncode == 0  # a driver is no hardware
    assert three.cached(folder, "turing-1")["driver"]["version"] == "580.200.01"
    assert three.cached(folder, "turing-1")["at"] == "2030-01-01T00:00:00Z"


# gpufleet discover


def test_discover_shows_each_box_and_what_changed(three: Boxes, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    folder = three.folder(tmp_path / "home")
    done = run(tmp_path, "discover", "home/inventory/home.py", program=GPUFLEET)
    assert done.returncode == 0, done.stdout
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("turing-1 ")]
    for word in ("sm75 nvlink", "2 × a card 22528 MiB", "1 × NV2", "580.159.03 (CUDA 13.0)", "debian 12"):
        assert word in row
    assert "cpu-1: not known before" in done.stdout
    three.facts["cpu-1"] = {**CPU, "os": {**CPU["os"], "version_id": "13"}}
    again = run(tmp_path, "discover", "home/inventory/home.py", program=GPUFLEET)
    assert [line for line in again.stdout.splitlines() if re.match(r"\S+: ", line)] == [
        "cpu-1: os.version_id: 12 before, 13 now"
    ]
    assert three.cached(folder, "cpu-1")["os"]["version_id"] == "13"
    assert "Warning" not in done.stdout + again.stdout


def test_discover_with_a_box_that_is_off(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    three.off.add("ampere-1")
    done = run(folder, "discover", "inventory/home.py", program=GPUFLEET)
    assert done.returncode == 1, done.stdout
    assert "is on" in line(done.stdout, "ampere-1").lower() and "Traceback" not in done.stdout
    assert three.cached(folder, "turing-1") and three.cached(folder, "cpu-1")


def test_discover_keeps_what_was_known_when_the_driver_fails(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    assert run(folder, "discover", "inventory/home.py", program=GPUFLEET).returncode == 0
    kept = three.cached(folder, "turing-1")
    failed = {"gpus": [], "links": {}, "errors": [{"source": "nvml", "message": "Driver/library version mismatch"}]}
    three.facts["turing-1"] = {**TURING, **failed}
    done = run(folder, "discover", "inventory/home.py", program=GPUFLEET)
    assert done.returncode == 1 and "Driver/library version mismatch" in line(done.stdout, "turing-1"), done.stdout
    assert three.cached(folder, "turing-1") == kept


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["inventory/hom.py"], "there is no inventory inventory/hom.py"),
        (["inventory/home.py", "--limit", "turing-l"], "did you mean 'turing-1'?"),
        (["inventory/broken.py"], "inventory/broken.py: ZeroDivisionError"),
        (["inventory/plain.py"], "does not call gpufleet.inventory.by_traits"),
        (["inventory/wrong.py"], "inventory/wrong.py: box a: unknown key 'ssh_host'"),
    ],
)
def test_discover_with_a_wrong_call(three: Boxes, tmp_path: Path, arguments: list[str], says: str) -> None:
    folder = three.folder(tmp_path)
    (folder / "inventory/broken.py").write_text("1 / 0\n")
    (folder / "inventory/plain.py").write_text("boxes = ['a']\n")
    (folder / "inventory/wrong.py").write_text(
        "from gpufleet.inventory import by_traits\nglobals().update(by_traits([('a', {'ssh_host': '127.0.0.1'})]))\n"
    )
    done = run(folder, "discover", *arguments, program=GPUFLEET)
    assert done.returncode == 2 and says in done.stdout and "Traceback" not in done.stdout, done.stdout
    assert three.logins == {}


# Many boxes


@pytest.mark.parametrize("options", [["-y"], ["-y", "--parallel", "1"], ["--dry", "--parallel", "1"]])
def test_a_hundred_boxes_two_of_them_off(tmp_path: Path, options: list[str]) -> None:
    with boxes({f"box-{number}": CPU for number in range(1, 101)}) as hundred:
        hundred.off |= {"box-50", "box-100"}
        done = deploy(hundred.folder(tmp_path), *options)
    assert done.returncode == 1, done.stdout
    states = {name: state(done.stdout, name) for name in hundred.facts}
    assert {name for name, word in states.items() if word == "failed"} == {"box-50", "box-100"}
    assert {word for name, word in states.items() if name not in hundred.off} == {"nothing to do"}
    assert set(hundred.looks.values()) == {1}


def test_a_hundred_boxes_of_which_one_is_refused(tmp_path: Path) -> None:
    with boxes({f"box-{number}": CPU for number in range(1, 101)}) as hundred:
        folder = hundred.folder(tmp_path, box_73=ASKS_FOR_GPUS)
        for looks in (1, 2):  # the first look is before pyinfra's groups, the next in the run itself
            done = deploy(folder, "-y", "--parallel", "1")
            assert done.returncode == 3 and "because of box-73, and" in done.stdout, done.stdout
            words = [state(done.stdout, name) for name in hundred.facts]
            assert words.count("not touched: the run was refused") == 99 and words.count("refused") == 1
            assert set(hundred.looks.values()) == {looks}


def test_an_answer_that_could_not_be_read_again_is_said_and_not_kept(three: Boxes, tmp_path: Path) -> None:
    folder = three.folder(tmp_path)
    three.facts["cpu-1"] = {**CPU, "disks": {"/": {"free_mib": 5}}}
    done = run(folder, "discover", "inventory/home.py", program=GPUFLEET)
    assert done.returncode == 1, done.stdout
    assert "cpu-1: its answer is not as facts have to be (disks./.total_mib: Field required)" in done.stdout
    assert sorted(path.stem for path in (folder / "inventory/facts/home").iterdir()) == ["ampere-1", "turing-1"]
