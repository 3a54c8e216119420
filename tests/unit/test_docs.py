"""The documentation names what is there: rules, settings, files, make targets; and every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpufleet.rules import page as rules
from gpufleet.rules.base import RULES
from gpufleet.schema import Data
from gpufleet.settings import Expect, Fetch, Host, Mirrors, Rollout, Serve, Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "README.zh-CN.md",
    ROOT / "CHANGELOG.md",
    ROOT / "lab" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ON_BOXES = ("status", "diff", "rollback", "logs", "history", "unlock", "bundle", "doctor")
FENCE = re.compile(r"^(?: {4}|\t).*$", re.MULTILINE)


def words(text: str) -> str:
    """A page without its blocks of code, in which brackets are no links."""
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(words(page.read_text(encoding="utf-8"))):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            yield f"{link}: no such heading"


def rules_page() -> str:
    return (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")


def test_the_page_of_rules_is_what_the_rules_say() -> None:
    assert rules_page() == rules.page(), "make it anew: python -m gpufleet.rules > docs/rules.md"


def test_the_command_prints_the_page_of_rules() -> None:
    done = subprocess.run([sys.executable, "-m", "gpufleet.rules"], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.decode() == rules_page()


def test_every_rule_has_its_heading_and_no_other() -> None:
    headings = re.findall(r"^### (.+)$", rules_page(), re.MULTILINE)
    assert headings == [f"{code} {RULES[code].name}" for code in sorted(RULES)]


@pytest.mark.parametrize("code", sorted(RULES))
def test_a_rule_is_described_with_its_level_a_remedy_and_a_source(code: str) -> None:
    heading = f"### {code} {RULES[code].name}\n"
    section = re.split(r"^#{2,3} ", rules_page().split(heading, 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    assert section.strip().startswith(f"**{RULES[code].level}**")
    assert "\n→ " in section and "\nSource: " in section
    assert all(len(line) <= 120 for line in section.splitlines())


def field_problems() -> dict[int, str]:
    """Where each problem ends, by its number."""
    page = (ROOT / "docs" / "field-problems.md").read_text(encoding="utf-8")
    return {int(number): end for number, end in re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)}


def test_every_field_problem_ends_somewhere() -> None:
    assert list(field_problems()) == list(range(1, 61))


@pytest.mark.parametrize("number", range(1, 61))
def test_a_field_problem_ends_as_rule_default_gate_or_not_here(number: int) -> None:
    end = field_problems()[number]
    assert re.search(r"\*\*(rule|default|gate|not here)\*\*", end)
    named = re.findall(r"\[(GF\d+)\]\(rules\.md#(gf\d+)-([a-z0-9-]+)\)", end)
    assert bool(named) == ("**rule**" in end)
    for code, anchor, name in named:
        assert anchor == code.lower() and RULES[code].name == name
    assert re.findall(r"GF\d+", end) == [code for code, _, _ in named]


def test_a_rule_that_names_a_field_problem_is_named_by_it() -> None:
    for item in RULES.values():
        for named in rules.NUMBERS.findall(item.source):
            for number in re.findall(r"\d+", named):
                assert item.code in field_problems()[int(number)], f"{item.code} says field-problems {number}"


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        (Settings, ""),
        (Serve, ""),
        (Host, "host."),
        (Mirrors, "mirrors."),
        (Fetch, "fetch."),
        (Expect, "expect."),
        (Rollout, "rollout."),
    ],
)
def test_every_setting_has_its_row_and_no_other(kind: type[Data], prefix: str) -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    heading = {Settings: "Top level", Serve: "A serve entry"}.get(kind, prefix.rstrip("."))
    section = page.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))
    assert rows == {prefix + name for name in kind.model_fields}


@pytest.mark.parametrize(
    "name",
    ["init", "plan", "discover", "fetch", "gc", "patches check", "models check", "models fit", "adopt", *ON_BOXES],
)
def test_options_of_a_command_exist_and_are_documented(name: str) -> None:
    from gpufleet.cli import main

    command: click.Command = main
    for word in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found, word
        command = found
    known = {word for item in command.params if isinstance(item, click.Option) for word in item.opts}
    lines = [line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    calls = [line.split("`")[0] for line in re.findall(rf"gpufleet {name} (.+)", "\n".join(lines))]
    named = {word for call in calls for word in re.findall(r"(?<![\w-])--[a-z-]+", call)}
    assert named and named <= known
    assert {word for word in known if not any(word in line for line in lines)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_pages_are_all_linked_from_the_readme() -> None:
    linked = {(ROOT / link.split("#")[0]).resolve() for link in LINK.findall((ROOT / "README.md").read_text())}
    assert [page for page in (ROOT / "docs").rglob("*.md") if page not in linked] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:^ {4}|`|sudo )make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(named) <= targets


def test_files_the_readme_names_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:tools|inventory|files|lab|group_data|operations|gpufleet|hostkit)/[\w./-]*\w", text))
    own = {"group_data/sm75.py", "inventory/home.py", "gpufleet/bin/activate"}  # the owner's, in examples
    # `/opt/gpufleet/kit` is on a box
    assert {name for name in named - own - {"gpufleet/kit"} if not (ROOT / name).exists()} == set()


def test_the_lab_commands_of_the_docs_exist() -> None:
    from lab.__main__ import parser

    known = next(action for action in parser()._actions if action.dest == "command").choices
    assert known
    for page in PAGES:
        for command in re.findall(r"-m lab (\w+)", page.read_text(encoding="utf-8")):
            assert command in known, f"{page.name}: python -m lab {command}"
