"""The commands of the first pages.

tests/lab/test_owners_way.py runs those of the start and of the page on folders as they stand. Here it is seen that the
README has no others, and that the start counts right.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import REPOSITORY
from tests.documents import Command, commands

START = REPOSITORY / "docs" / "start.md"
WORDS = ["no", "one", "two", "three", "four", "five", "six"]
FOLDER = REPOSITORY / "docs" / "how-to" / "a-folder-of-your-own.md"

PAGE = """\
Do `pip install x`:

    pip install .
    gpufleet init ~/fleet

    box  state
    gpufleet-x.service

and then

    curl http://192.0.2.1/ \\
      -d '{}'

pip install y
"""


def test_the_commands_of_a_page_are_told_from_what_they_print(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert commands(page) == [
        Command(("pip install .",)),
        Command(("gpufleet init ~/fleet",)),
        Command(("curl http://192.0.2.1/ \\", "  -d '{}'")),
    ]


def test_what_the_way_to_the_first_completion_takes_is_said() -> None:
    shown = commands(START)
    first = next(at for at, command in enumerate(shown) if command.program == "pip")
    last = next(at for at, command in enumerate(shown) if command.program == "curl")
    count = WORDS[last - first + 1]
    lines = [line for command in shown[first : last + 1] for line in command.lines]
    assert f"{count} commands" in START.read_text(encoding="utf-8")
    keys = sum(len(line) + 1 for line in lines)  # and Enter
    status = (REPOSITORY / "docs" / "status.md").read_text(encoding="utf-8")
    assert f"{count} commands of {WORDS[len(lines)]} lines and {keys} keys" in status


@pytest.mark.parametrize("page", sorted(REPOSITORY.glob("README*.md")), ids=lambda page: page.name)
def test_the_readme_has_no_command_of_its_own(page: Path) -> None:
    run = {command.text for command in (*commands(START), *commands(FOLDER))}
    own = [command.text for command in commands(page) if command.text not in run]
    # plans of topologies are run by test_docs_examples.py
    assert [text for text in own if "--topology lab/" not in text] == []
