"""What the pages print of plans and fits is what the commands say: columns may be parted more or less widely."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpufleet.cli import main

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = ROOT / "docs" / "how-to"
SCENARIOS = "lab/topologies"


def said(*arguments: str) -> list[str]:
    """Lines of stdout, each with single blanks."""
    done = CliRunner().invoke(main, [str(ROOT / part) if part.startswith(SCENARIOS) else part for part in arguments])
    assert done.exit_code in (0, 3), done.output
    return [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]


def printed(page: Path) -> list[str]:
    return [" ".join(line.split()) for line in page.read_text(encoding="utf-8").splitlines()]


def commands(page: Path) -> list[list[str]]:
    """Those of a page that need no fleet: their arguments."""
    lines = re.findall(
        r"^    (?:\.venv/bin/)?gpufleet (.*--topology lab/.*)$", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    return [shlex.split(line) for line in lines]


def test_the_readme_prints_the_plan_of_its_command() -> None:
    (command,) = commands(ROOT / "README.md")
    assert set(said(*command)) <= set(printed(ROOT / "README.md"))


def test_the_page_on_fits_prints_what_would_change_that() -> None:
    page = HOW_TO / "which-box-holds-a-model.md"
    (command,) = commands(page)
    lines = said(*command)
    changes = lines[next(at for at, line in enumerate(lines) if "it fits with" in line) :]
    assert len(changes) >= 4 and set(changes) <= set(printed(page))


@pytest.mark.parametrize(("box", "name"), [("turing-1", "dual-2080ti-nv2"), ("single-1", "single-2080ti")])
def test_the_page_on_fits_prints_what_its_boxes_answer(box: str, name: str) -> None:
    found = said("models", "fit", "qwen3.8-27b-awq", "--topology", f"{SCENARIOS}/{name}.json")
    assert {line.replace(name, box) for line in found} <= set(printed(HOW_TO / "which-box-holds-a-model.md"))


def plans(*arguments: str) -> list[str]:
    """What `plan` says of the model's instances, from the instance's name on."""
    return [
        line[line.index("qwen3.8-") :] for line in said("plan", *arguments) if re.search(r"qwen.* \(\d\.\d\dx\) ", line)
    ]


@pytest.mark.parametrize(
    ("box", "name", "more"),
    [
        ("turing-1", "dual-2080ti-nv2", ["--set", "serve_args.max-model-len=100000"]),
        ("ampere-1", "quad-3090-two-pairs", []),
    ],
)
def test_the_page_on_plans_prints_what_its_boxes_get(box: str, name: str, more: list[str]) -> None:
    page = printed(HOW_TO / "plan-before-you-deploy.md")
    found = plans("--topology", f"{SCENARIOS}/{name}.json", "--model", "qwen3.8-27b-awq", *more)
    at = next(at for at, line in enumerate(page) if line.startswith(f"{box} sm"))
    assert found and [line[line.index("qwen3.8-") :] for line in page[at : at + len(found)]] == found


def test_the_page_on_plans_prints_the_plan_of_its_scenario(tmp_path: Path) -> None:
    page = HOW_TO / "plan-before-you-deploy.md"
    (text,) = re.findall(
        r'^    \{\n     "name": "attic".*?^    \}$', page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "attic.json").write_text(text, encoding="utf-8")
    found = said("plan", "--topology", str(tmp_path / "attic.json"), "--model", "qwen3.8-27b-awq")
    wanted = [line for line in found if ("qwen3.8-" in line and "GF" not in line) or "GF301" in line]
    assert len(wanted) == 3 and set(wanted) <= set(printed(page))
