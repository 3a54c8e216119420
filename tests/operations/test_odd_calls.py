"""Odd calls, odd files and odd surroundings: an agreed exit code and a line that says why, never a traceback."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command import GPUFLEET, PYINFRA, REPOSITORY, owners_folder, run
from tests.unit.fleets import gpu_facts

PAIR = str(REPOSITORY / "lab" / "topologies" / "dual-2080ti-nv2.json")
MODEL = ("--model", "qwen3.8-27b-awq")
HEAD = "from gpufleet.inventory import by_traits\n"
BOXES = 'boxes = [("a", {"ssh_hostname": "127.0.0.1", "serve": ["qwen3.8-27b-awq"]})]\n'
INVENTORY = f"{HEAD}{BOXES}globals().update(by_traits(boxes))\n"


def plan(folder: Path, *arguments: str, **env: str) -> Any:
    return run(folder, "plan", *arguments, program=GPUFLEET, **env)


def known(folder: Path, **more: Any) -> Path:
    """A fleet of one box of which something is known."""
    owners_folder(folder, INVENTORY)
    kept = folder / "inventory" / "facts" / "home" / "a.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({**gpu_facts(), **more}))
    return folder


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("serve_args.gpu-memory-utilization=NaN", "what JSON can hold"),
        ("serve_args.max-model-len=1e400", "what JSON can hold"),
        ("serve_args.max-model-len=" + "9" * 400, "what JSON can hold"),
        ('serve_args.seed="\\ud800"', "UTF-8"),
        ("serve_args.seed=" + '{"a":' * 50 + "1" + "}" * 50, "nested"),
        ("instances=100000", "instances"),
        ("streams=100000000", "streams"),
        ('serve=[{"model":"qwen3-0.6b","port":65535,"instances":2,"tensor_parallel_size":1}]', "port 65536"),
    ],
)
def test_a_setting_that_cannot_be(tmp_path: Path, setting: str, says: str) -> None:
    done = plan(tmp_path, "--topology", PAIR, *MODEL, "--set", setting)
    assert done.returncode == 2 and says in done.stdout and "Traceback" not in done.stdout
    assert len(done.stdout) < 500


@pytest.mark.parametrize(
    "setting",
    [
        'serve_args.gpu-memory-utilization="nan"',
        f'serve_args.max-model-len="{"9" * 400}k"',
        "serve_args.max-num-batched-tokens=-1",
        "serve_args.x=" + "[" * 100_000,
    ],
)
def test_a_flag_that_makes_no_sense_is_planned_or_refused(tmp_path: Path, setting: str) -> None:
    done = plan(tmp_path, "--topology", PAIR, *MODEL, "--set", setting)
    assert done.returncode in (0, 3) and "Traceback" not in done.stdout


@pytest.mark.parametrize(
    ("inventory", "code", "says"),
    [
        ("import sys; sys.exit(0)", 2, "ends the program itself"),
        ("raise KeyboardInterrupt", 130, "interrupted"),
    ],
)
def test_an_inventory_that_ends_the_program(tmp_path: Path, inventory: str, code: int, says: str) -> None:
    owners_folder(tmp_path, inventory)
    done = plan(tmp_path, "inventory/home.py")
    assert done.returncode == code and says in done.stdout and "Traceback" not in done.stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys\nboxes = [adress]", "line 3: NameError: name 'adress' is not defined"),
        ("boxes = [", "SyntaxError: '[' was never closed (home.py, line 2)"),
        ("import of_nobody", "line 2: ModuleNotFoundError: No module named 'of_nobody'"),
        ("raise PermissionError(13, 'Permission denied', '/a/b')", "/a/b cannot be read: permission denied"),
    ],
)
@pytest.mark.parametrize(
    ("program", "call"),
    [(GPUFLEET, ("deploy", "-y", "inventory/home.py")), (PYINFRA, ("-y", "inventory/home.py", "deploy.py"))],
    ids=["gpufleet", "pyinfra"],
)
def test_what_an_inventory_raises_is_a_line_of_a_deploy_as_of_others(
    tmp_path: Path, text: str, says: str, program: list[str], call: tuple[str, ...]
) -> None:
    owners_folder(tmp_path, f"from gpufleet.inventory import by_traits\n{text}\n")
    planned = plan(tmp_path, "inventory/home.py").stdout
    deployed = run(tmp_path, *call, program=program)
    assert deployed.returncode == 2 and "Traceback" not in deployed.stdout, deployed.stdout
    (line,) = [line for line in deployed.stdout.splitlines() if line.startswith("gpufleet: ")]
    assert says in line and line in planned, (planned, line)


def test_names_with_brackets_are_no_markup(tmp_path: Path) -> None:
    scenario = json.loads(Path(PAIR).read_text(encoding="utf-8"))
    (tmp_path / "odd.json").write_text(json.dumps({**scenario, "name": "[/red]"}))
    done = plan(tmp_path, "--topology", "odd.json")
    assert done.returncode == 0 and "[/red]" in done.stdout


def test_what_a_box_says_does_not_command_the_terminal(tmp_path: Path) -> None:
    gpus = gpu_facts()["gpus"]
    gpus[0]["name"] = "\x1b[2J\u202e[/x]"
    known(tmp_path, gpus=gpus)
    done = plan(tmp_path, "inventory/home.py", "--set", "expect.nvlink=9")
    assert done.returncode == 3 and "\x1b" not in done.stdout and "\u202e" not in done.stdout
    assert "\ufffd[2J\ufffd[/x]" in done.stdout


@pytest.mark.parametrize(
    "more", [{"driver": "580"}, {"holds": [{}]}, {"links": {"0-1": "fast"}}, {"hostname": None}, {"disks": 3}]
)
def test_damaged_facts_are_none(tmp_path: Path, more: dict[str, Any]) -> None:
    done = plan(known(tmp_path, **more), "inventory/home.py")
    assert done.returncode == 2 and "gpufleet discover inventory/home.py" in done.stdout


@pytest.mark.parametrize(("svg", "says"), [("/", "is a folder"), (".", "is a folder"), ("none/x.svg", "No such file")])
def test_a_picture_that_cannot_be_written(tmp_path: Path, svg: str, says: str) -> None:
    done = plan(known(tmp_path), "inventory/home.py", "--svg", svg)
    assert done.returncode == 2 and says in done.stdout


@pytest.mark.parametrize(
    ("page", "text", "says"),
    [
        ("models/x.yaml", "a: " + "[" * 5000, "cannot be read"),
        ("stacks/s.yaml", "flags: none-such", "s.yaml: unknown engine 'none-such'"),
        ("stacks/s.yaml", "flags: dir", "dir.txt: cannot be read"),
        ("stacks/s.yaml", "lock: none.txt\nuv: {version: '1', sha256: '" + "a" * 64 + "'}", "none.txt"),
    ],
)
def test_catalogues_that_cannot_be_read(tmp_path: Path, page: str, text: str, says: str) -> None:
    (tmp_path / "files" / "engines" / "dir.txt").mkdir(parents=True)
    path = tmp_path / "files" / page
    path.parent.mkdir()
    head = 'schema: 1\nname: s\ntitle: t\nengine: vllm\npython: ["3.12"]\narch: [sm75]\n'
    path.write_text(head + text if page.startswith("stacks") else text)
    done = plan(tmp_path, "--topology", PAIR)
    assert done.returncode == 2 and says in done.stdout and "Traceback" not in done.stdout


def test_python_runs_it_as_a_module(tmp_path: Path) -> None:
    module = [sys.executable, "-m", "gpufleet"]
    assert run(tmp_path, "--version", program=module).stdout == run(tmp_path, "--version", program=GPUFLEET).stdout
    wrong = run(tmp_path, "plan", "--no-such", program=module)
    assert wrong.returncode == 2 and wrong.stdout.startswith("Usage: gpufleet plan "), wrong.stdout
    missing = run(tmp_path, "deploy", "no.py", "-y", program=module)
    assert missing.returncode == 2 and missing.stdout.startswith("gpufleet: there is no inventory no.py")


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    done = plan(tmp_path, "x" * 300)
    assert done.returncode == 2 and "too long" in done.stdout


@pytest.mark.parametrize(("where", "code"), [(">&-", 0), (">/dev/full", 2), ("--json >/dev/full", 2)])
def test_output_that_goes_nowhere(tmp_path: Path, where: str, code: int) -> None:
    command = shlex.join([*GPUFLEET, "plan", "--topology", PAIR])
    done = subprocess.run(["bash", "-c", f"{command} {where}"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == code and "Traceback" not in done.stderr


def test_output_in_a_small_alphabet(tmp_path: Path) -> None:
    owners_folder(tmp_path, f"{HEAD}by_traits([('a', 1)])\n")
    done = plan(tmp_path, "inventory/home.py", PYTHONIOENCODING="ascii")
    assert done.returncode == 2 and "is no box" in done.stdout


@pytest.mark.parametrize("text", ["", 'boxes = [("a", {"ssh_hostname": "127.0.0.1"})]\n'])
@pytest.mark.parametrize("program", [PYINFRA, (*GPUFLEET, "deploy")], ids=["pyinfra", "gpufleet deploy"])
def test_a_deploy_of_what_is_no_inventory(tmp_path: Path, program: Any, text: str) -> None:
    owners_folder(tmp_path, INVENTORY)
    (tmp_path / "inventory/other.py").write_text(text)
    words = ("inventory/other.py", "--dry") + (("deploy.py",) if program == PYINFRA else ())
    done = run(tmp_path, *words, program=program)
    assert done.returncode == 2 and "Traceback" not in done.stdout, done.stdout
    says = "inventory/other.py is no inventory: it does not call gpufleet.inventory.by_traits; give "
    assert says in done.stdout and "inventory/home.py" in done.stdout
