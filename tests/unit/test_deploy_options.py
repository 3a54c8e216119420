"""The words of `gpufleet deploy`: which are pyinfra's options with their values, and what a wrong one is told."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from gpufleet.cli import main
from gpufleet.commands.deploy import apart

HOME = "inventory/home.py"


@pytest.mark.parametrize(
    "words",
    [
        ["-y"],
        ["--dry", "--diff", "-vv", "-vy"],
        ["--limit", "a", "--limit=b", "--exclude", ""],
        ["--data", "stack=x", "--data=a=-1"],
        ["--parallel", "2", "--fail-percent=-1", "--ssh-user", "me"],
        ["--limit", "--dry"],  # as click has it: the word that follows is the value
    ],
)
def test_options_keep_their_values_wherever_the_inventory_is(words: list[str]) -> None:
    assert apart([HOME, *words]) == apart([*words, HOME]) == (words, [HOME])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([HOME, "--lmit", "x"], "No such option '--lmit'; did you mean '--limit'?"),
        (["--lmit=x", HOME], "No such option '--lmit'; did you mean '--limit'?"),
        ([HOME, "-z"], "No such option '-z'; did you mean '--help'?"),
        ([HOME, "-yz"], "No such option '-yz'"),
        ([HOME, "--limit"], "Option '--limit' requires an argument."),
        ([HOME, "--dry=1"], "Option '--dry' does not take a value."),
        ([HOME, "--parallel", "two"], "Option '--parallel': 'two' is not a number."),
        (["--ssh-port=", HOME], "Option '--ssh-port': '' is not a number."),
        (["-y"], "Missing argument 'INVENTORY'"),
        ([], "Missing argument 'INVENTORY'"),
    ],
)
def test_a_wrong_option_is_told_with_gpufleets_own_usage(words: list[str], says: str) -> None:
    done = CliRunner().invoke(main, ["deploy", *words], prog_name="gpufleet")
    assert done.exit_code == 2 and says in done.stderr, done.output
    assert (
        done.stderr.startswith("Usage: gpufleet deploy [OPTIONS] INVENTORY [OPTIONS]...")
        and "pyinfra" not in done.stderr
    )


def test_a_box_is_no_second_inventory() -> None:
    done = CliRunner().invoke(main, ["deploy", HOME, "box-1", "-y"])
    assert done.exit_code == 2 and "not box-1 besides" in done.stderr and "--limit BOX" in done.stderr
