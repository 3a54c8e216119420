"""Runs over several boxes: what is looked at when, who stops whom."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.command import GPUFLEET, PYINFRA, deploy, run
from tests.operations.boxes import Boxes, boxes
from tests.operations.three import AMPERE, ASKS_FOR_GPUS, CPU, LEFT_OUT, line, state, three

__all__ = ["three"]  # the fixture


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
    assert state(done.stdout, "ampere-1") == "failed" and "does not speak SSH" in line(done.stdout, "ampere-1")
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
