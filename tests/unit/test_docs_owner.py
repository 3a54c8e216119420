"""The pages for owners: what they print of plans is what the commands say; commands that they name exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpufleet.cli import main
from tests.unit.test_docs import PAGES
from tests.unit.test_docs_examples import HOW_TO, ROOT, said

OWNERS = ["add-a-box", "another-topology", "several-cards-in-pairs", "v100", "upgrade-an-engine"]
CALL = re.compile(r"^ +(?:\.venv/bin/)?gpufleet (.+)$")


def examples(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Commands of a page that need no fleet, each with the lines that the page prints of it."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        found = CALL.match(line)
        if not found or "--topology lab/" not in line:
            continue
        printed = []
        for after in lines[at + 1 :]:
            if (after.strip() and not after.startswith("    ")) or CALL.match(after):
                break
            printed.append(" ".join(after.split()))
        yield shlex.split(found[1]), [text for text in printed if text]


@pytest.mark.parametrize("name", OWNERS)
def test_a_page_prints_what_its_commands_say(name: str) -> None:
    for command, printed in examples((HOW_TO / f"{name}.md").read_text(encoding="utf-8")):
        assert set(printed) - set(said(*command)) == set(), command


def test_pages_print_plans() -> None:
    pages = [list(examples((HOW_TO / f"{name}.md").read_text(encoding="utf-8"))) for name in OWNERS]
    assert sum(bool(printed) for page in pages for _, printed in page) >= 10


def calls(page: Path) -> Iterator[list[str]]:
    """Calls of gpufleet in a page's blocks of code."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if found := CALL.match(line):
            yield re.split(r"  +#|\s+\||\s*&&", found[1])[0].split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_a_page_calls_exist(page: Path) -> None:
    for words in calls(page):
        command: click.Command = main
        for word in words:
            found = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
            if found is None:
                break
            command = found
        assert command is not main, words
        known = {name for item in command.params if isinstance(item, click.Option) for name in item.opts}
        named = {word.split("=")[0] for word in words if re.match(r"--[a-z]", word)}
        if command.name != "deploy":  # whose options are pyinfra's
            assert named <= known, words
