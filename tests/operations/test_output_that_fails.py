"""Output that cannot be written, and a working directory that is gone: one line with the cause, and the right code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.command import GPUFLEET, REPOSITORY

PAIRS = str(REPOSITORY / "lab" / "topologies" / "quad-3090-two-pairs.json")
PLAN = ("plan", "--topology", PAIRS, "--model", "qwen3.8-27b-awq")
FULL = Path("/dev/full")


def full(*arguments: str, folder: Path) -> tuple[int, str]:
    with FULL.open("w") as stream:
        done = subprocess.run(
            [*GPUFLEET, *arguments], cwd=folder, stdout=stream, stderr=subprocess.PIPE, text=True, check=False
        )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "call", [("--help",), ("--version",), ("plan", "--help"), ("stacks",), PLAN, (*PLAN, "--json")]
)
def test_a_full_standard_output_is_named(call: tuple[str, ...], tmp_path: Path) -> None:
    said = (
        "gpufleet: standard output cannot be written: No space left on device; free space there, or send it elsewhere\n"
    )
    assert full(*call, folder=tmp_path) == (2, said)


def test_init_ends_as_it_went(tmp_path: Path) -> None:
    assert full("init", "fleet", folder=tmp_path) == (0, "")
    assert (tmp_path / "fleet" / "inventory" / "home.py").is_file()


def test_a_picture_on_a_full_disk(tmp_path: Path) -> None:
    done = subprocess.run(
        [*GPUFLEET, *PLAN, "--svg", str(FULL)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = "No space left on device; free space there, or give a file elsewhere"
    assert (done.returncode, done.stderr) == (2, f"gpufleet: --svg /dev/full cannot be written: {said}\n")


@pytest.mark.parametrize("call", [("stacks",), ("models", "check"), PLAN, ("init", "x"), ("plan", "x.py")])
def test_a_working_directory_that_is_gone(call: tuple[str, ...], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *GPUFLEET, *call]
    done = subprocess.run(command, cwd=gone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == "gpufleet: the working directory is not there any more: go to one that is, and call it again\n"
    )


@pytest.mark.parametrize("call", [("-h",), ("plan", "-h"), ("models", "-h"), ("models", "fit", "-h"), ("deploy", "-h")])
def test_help_by_its_short_name(call: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run([*GPUFLEET, *call], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("Usage: ") and "-h, --help" in done.stdout


def test_an_unknown_model_without_an_inventory_is_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [*GPUFLEET, "models", "fit", "qwen3-0.6"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "give an inventory" in done.stderr and "'qwen3-0.6'; did you mean 'qwen3-0.6b'?" in done.stderr
