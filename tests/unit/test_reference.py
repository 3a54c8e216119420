"""The made parts of docs/reference are what the code says; what makes them names each thing that it cannot."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Annotated, Literal

import click
import pytest
from pydantic import Field

from gpufleet.errors import ConfigError
from gpufleet.reference import commands, regions, settings
from gpufleet.reference.pages import PAGES, REFERENCE, made
from gpufleet.schema import Data
from gpufleet.settings import Host, Serve
from tests.command import REPOSITORY


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_what_the_code_says(name: str) -> None:
    text = (REFERENCE / f"{name}.md").read_text(encoding="utf-8")
    assert text == made(name, text), "make it anew: python -m gpufleet.reference"


def test_the_command_leaves_pages_that_are_right() -> None:
    before = {name: (REFERENCE / f"{name}.md").read_bytes() for name in PAGES}
    done = subprocess.run([sys.executable, "-m", "gpufleet.reference"], cwd=REPOSITORY, capture_output=True, check=True)
    assert done.stdout == b"" and before == {name: (REFERENCE / f"{name}.md").read_bytes() for name in PAGES}


def test_a_made_part_that_was_edited_is_made_anew_and_the_rest_stays() -> None:
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    edited = text.replace("| `host.swappiness` |", "| `host.swappyness` |").replace("# Settings", "# My settings")
    assert edited != text
    assert made("settings", edited) == text.replace("# Settings", "# My settings")


def test_every_command_has_its_heading_that_the_list_links_to() -> None:
    page = (REFERENCE / "commands.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^## (.+)$", page, re.MULTILINE))
    names = set(commands.parts()) - {"commands"}
    assert len(names) > 15 and names <= headings


def test_a_new_command_gets_a_section_at_the_end() -> None:
    page = "# Commands\n"
    found = regions.renewed(page, {"melt": "    gpufleet melt"}, commands.heading)
    assert found.startswith("# Commands\n\n## melt\n\n<!-- made") and "\n    gpufleet melt\n" in found
    assert regions.renewed(found, {"melt": "    gpufleet melt"}, commands.heading) == found


def test_a_new_command_goes_below_its_heading() -> None:
    page = "# Commands\n\n## melt\n\nBy hand.\n\n## freeze\n"
    found = regions.renewed(page, {"melt": "made"}, commands.heading)
    assert [line for line in found.splitlines() if line and "<!--" not in line] == [
        *("# Commands", "## melt", "made", "By hand.", "## freeze"),
    ]
    assert regions.renewed(found, {"melt": "made"}, commands.heading) == found


def test_a_part_without_a_place_and_a_place_without_a_part_are_named() -> None:
    page = regions.renewed("", {"gone": "x"}, commands.heading)
    with pytest.raises(ConfigError) as error:
        regions.renewed(page, {"new": "y"})
    assert len(error.value.problems) == 2
    assert "'gone'" in error.value.problems[0] and "'new'" in error.value.problems[1]


def test_a_cell_holds_no_bar_and_no_new_line() -> None:
    assert regions.table(["a"], [["x|y\nz"]]).splitlines()[2:] == [r"| x\|y z |"]


def test_a_command_is_described_with_its_options() -> None:
    @click.command()
    @click.argument("box")
    @click.option("-n", "--lines", type=click.IntRange(1, 9), default=3, show_default=True, help="The last lines.")
    @click.option("--limit", multiple=True, metavar="NAME", help="Only this.")
    @click.option("--quiet", is_flag=True, hidden=True, help="Not for readers.")
    def melt(box: str) -> None:
        """Melt BOX to <pieces>.

        It takes a while.

        Exit codes: 0.
        """

    text = commands._section(click.Context(melt, info_name="gpufleet melt"))
    assert text.startswith("    gpufleet melt BOX\n\nMelt BOX to \\<pieces>.\n\nIt takes a while.\n\n| option ")
    assert "| `-n`, `--lines N` | The last lines; default: 3 |" in text
    assert "| `--limit NAME` | Only this; may be given several times |" in text
    assert "quiet" not in text and text.endswith("\n\nExit codes: 0.")


class Oven(Data):
    """Settings as a class of them is written."""

    heat: int  # degrees. Example: 200
    #: minutes; see
    #: [time](time.md). Default: the recipe's
    time: int | None = None
    # A remark on what follows, which is no remark on `fan`.
    fan: bool = False  #: whether it blows


def test_a_remark_has_a_meaning_a_default_and_an_example() -> None:
    assert settings.remarks(Oven) == {
        "heat": "degrees. Example: 200",
        "time": "minutes; see [time](time.md). Default: the recipe's",
        "fan": "whether it blows",
    }
    rows = settings._table(Oven).splitlines()[2:]
    assert rows[0] == "| `oven.heat` | degrees | number | required | `200` |"
    assert rows[1] == "| `oven.time` | minutes; see [time](time.md) | number | the recipe's |  |"
    assert rows[2] == "| `oven.fan` | whether it blows | `True` or `False` | `False` |  |"


def test_a_setting_that_is_not_described_is_named() -> None:
    class Bare(Data):
        wattage: int = 1

    with pytest.raises(ValueError, match=r"Bare\.wattage has no remark"):
        settings._table(Bare)


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (Literal["a", "b"], '`"a"`, `"b"`'),
        (Annotated[int, Field(ge=1, le=9)], "1 to 9"),
        (Annotated[int, Field(ge=0)] | None, "0 or more"),
        (list[str], "list: text"),
        (dict[str, bool], "mapping of text to `True` or `False`"),
        (Host, "mapping"),
        (Serve, "entry"),
    ],
)
def test_what_may_be_written_is_said_in_words(hint: object, said: str) -> None:
    assert settings.word(hint) == said


def test_a_type_without_a_word_is_named() -> None:
    with pytest.raises(ValueError, match="bytes"):
        settings.word(bytes)
