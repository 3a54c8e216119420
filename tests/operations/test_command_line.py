"""Bad input through pyinfra's own command: exit 2, a line with file, key and the nearest name, and no connection."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from pyinfra_cli.cli import cli

from gpufleet.commands import deploy as deploy_command
from tests.command import GPUFLEET, PYINFRA, REPOSITORY, deploy, owners_folder, run

# Nobody answers there (RFC 5737): a test that got so far would wait for the connection to time out and exit with 1.
INVENTORY = """
from gpufleet.inventory import by_traits
boxes = [("box-1", {"ssh_hostname": "192.0.2.1", "serve": ["qwen3-0.6b"]})]
globals().update(by_traits(boxes))
"""


def inventory(data: str) -> str:
    return INVENTORY.replace('{"ssh_hostname": "192.0.2.1", "serve": ["qwen3-0.6b"]}', data)


@pytest.mark.parametrize(
    ("pages", "says"),
    [
        ({"group_data__sm75": "serve_arg = {}"}, ["group_data/sm75.py", "'serve_arg'", "did you mean 'serve_args'?"]),
        ({"group_data__nvlnk": "stack = 'x'"}, ["group_data/nvlnk.py", "neither a trait nor a group", "'nvlink'"]),
        ({"group_data__all": "stack = 'vllm-0.27.1-cpx'"}, ["group_data/all.py", "did you mean 'vllm-0.27.1-cpu'?"]),
        ({"inventory__home": inventory('{"serve": ["qwen3-0.6b"]}')}, ["inventory/home.py", "box-1 has no address"]),
        (
            {"inventory__home": inventory('{"ssh_hostname": "192.0.2.1", "serve": ["qwen3-0.6"]}')},
            ["inventory/home.py", "unknown model 'qwen3-0.6'", "did you mean 'qwen3-0.6b'?"],
        ),
        ({"inventory__home": inventory('{"ssh_host": "192.0.2.1"}')}, ["'ssh_host'", "did you mean 'ssh_hostname'?"]),
        ({"inventory__home": "from gpufleet.inventory import by_traits\nby_traits([])\n"}, ["there is no box in it"]),
    ],
)
def test_a_wrong_configuration(tmp_path: Path, pages: dict[str, str], says: list[str]) -> None:
    done = deploy(owners_folder(tmp_path, INVENTORY, **pages), "-y")
    assert done.returncode == 2, done.stdout
    assert "Connecting to hosts" not in done.stdout and "Traceback" not in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("gpufleet: ")]
    for word in says:
        assert word in line


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--limit", "sm99"], "--limit 'sm99' names no box and no group"),
        (["--limit", ""], "--limit '' names no box and no group"),
        (["--limit", "all"], "--limit 'all' names no box and no group"),
        (["--limit", "bx-1"], "did you mean 'box-1'?"),
        (["--limit", "box-1", "--exclude", "box-1"], "leave no box"),
        (["--serial"], "--serial is not for fleets"),
        (["--no-wait"], "--no-wait is not for fleets"),
        (["--parallel", "-1"], "--parallel is a number of boxes: 1 or more"),
        (["--data", "serve_arg=1"], "did you mean 'serve_args'?"),
        (["--data", "ssh_port=99999"], "ssh_port is 99999; it must be 1 to 65535"),
        (["--data", "ssh_port=ssh"], "ssh_port is 'ssh'; it must be 1 to 65535"),
        (["--ssh-port", "99999"], "ssh_port is 99999; it must be 1 to 65535"),
        (["--ssh-user", "a b"], "ssh_user is 'a b'"),
    ],
)
def test_a_wrong_call(tmp_path: Path, options: list[str], says: str) -> None:
    done = deploy(owners_folder(tmp_path, INVENTORY), "-y", *options)
    assert done.returncode == 2, done.stdout
    assert says in done.stdout
    assert "Connecting to hosts" not in done.stdout and "Traceback" not in done.stdout


@pytest.mark.parametrize("more", ["inventory/other.py", "deploy.py"])
@pytest.mark.parametrize("program", [PYINFRA, [*GPUFLEET, "deploy"]], ids=["pyinfra", "gpufleet"])
def test_a_run_has_one_inventory_and_one_deploy_file(tmp_path: Path, more: str, program: list[str]) -> None:
    folder = owners_folder(tmp_path, INVENTORY, inventory__other=INVENTORY)
    words = ("inventory/home.py", more, "-y") if "deploy" in program else ("-y", "inventory/home.py", more, "deploy.py")
    done = run(folder, *words, program=program)
    assert done.returncode == 2 and "Traceback" not in done.stdout, done.stdout
    said = f"a run has one inventory and one deploy file, not {more}, deploy.py"
    if "deploy" in program:
        said = f"a run has one inventory and its folder's deploy.py, not {more} besides"
    assert said in done.stdout
    assert "run each by itself" in done.stdout and "Connecting to hosts" not in done.stdout


def test_an_inventory_that_is_not_there(tmp_path: Path) -> None:
    done = deploy(owners_folder(tmp_path, INVENTORY), "-y", inventory="inventory/hom.py")
    assert done.returncode == 2 and "there is no inventory inventory/hom.py" in done.stdout, done.stdout


def test_a_wrong_working_directory(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    folder = owners_folder(tmp_path / "home", INVENTORY)
    done = run(tmp_path / "elsewhere", "-y", f"{folder}/inventory/home.py", f"{folder}/deploy.py")
    assert done.returncode == 2, done.stdout
    assert f"run this in {folder}" in done.stdout


def test_an_unreachable_box_is_one_line_with_cause_and_remedy(tmp_path: Path) -> None:
    text = inventory('{"ssh_hostname": "127.0.0.1", "ssh_port": 9, "serve": ["qwen3-0.6b"]}')
    done = deploy(owners_folder(tmp_path, text), "-y")
    assert done.returncode == 1, done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("box-1: ")]
    assert len(lines) == 1 and "Could not connect" in lines[0] and "check that it is on" in lines[0].lower()


def test_the_example_inventory_is_right() -> None:
    done = run(REPOSITORY, "inventory/home.py", "debug-inventory")
    assert done.returncode == 0, done.stdout
    assert "turing-1" in done.stdout and "ampere-1" in done.stdout


def test_gpufleet_deploy_runs_from_anywhere_and_keeps_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    folder = owners_folder(tmp_path / "home", INVENTORY, group_data__all="stak = 'x'")
    done = run(tmp_path, "deploy", "home/inventory/home.py", "-y", program=GPUFLEET)
    assert done.returncode == 2 and "did you mean 'stack'?" in done.stdout, done.stdout
    for path, says in (
        (f"{folder}/inventory/hom.py", "there is no inventory"),
        (f"{tmp_path}/x.py", "has no deploy.py"),
    ):
        (tmp_path / "x.py").write_text(INVENTORY)
        done = run(tmp_path, "deploy", path, program=GPUFLEET)
        assert done.returncode == 2 and says in done.stdout, done.stdout


@pytest.mark.parametrize(
    "words", [["-y", "--limit", "bx-1", "inventory/home.py"], ["--dry", "inventory/home.py", "-vv", "--limit=bx-1"]]
)
def test_options_stand_on_both_sides_of_the_inventory(tmp_path: Path, words: list[str]) -> None:
    done = run(owners_folder(tmp_path, INVENTORY), "deploy", *words, program=GPUFLEET)
    assert done.returncode == 2 and "--limit 'bx-1' names no box and no group" in done.stdout, done.stdout


def test_the_options_of_a_deploy_are_pyinfras() -> None:
    found = {name: option for option in cli.params if isinstance(option, click.Option) for name in option.opts}
    assert set(found) == deploy_command.FLAGS | deploy_command.NUMBERS | deploy_command.TEXTS
    flags = {name for name, option in found.items() if option.is_flag or option.count}
    assert flags == deploy_command.FLAGS
    assert {name for name in set(found) - flags if found[name].type is click.INT} == deploy_command.NUMBERS
