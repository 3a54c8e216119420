"""The Chinese pages have the commands, links and tables of the English ones; only the words are others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.test_docs import LINK, ROOT, broken_links, words

PAIRS = [("README.md", "README.zh-CN.md"), ("docs/start.md", "docs/start.zh-CN.md")]
TYPED = re.compile(
    r"(\.venv/bin/)?(gpufleet|pyinfra|python|pip|hf)\b|tools/|(make|curl|systemctl|journalctl|apt-get|userdel|ssh\S*) "
    r"|(cd|rm|for|cat|tail|python3) |\. "
)
HAN = re.compile(r"[\u3000-\u9fff\uff00-\uffef]")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(page: str) -> list[str]:
    """Lines of code of a page, as they stand."""
    return [line.strip() for line in page.splitlines() if line.startswith("    ") and line.strip()]


def calls(page: str) -> list[str]:
    """Lines of code that are typed, not printed, without what a remark behind them says."""
    return [re.split(r" +# ", line)[0] for line in blocks(page) if TYPED.match(line)]


def targets(name: str) -> list[str]:
    """The files that a page leads to, without anchors, which are words."""
    page = ROOT / name
    found = {link.split("#")[0] for link in LINK.findall(words(page.read_text(encoding="utf-8")))} - {""}
    return sorted(str((page.parent / link).resolve()) if "://" not in link else link for link in found)


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_commands_are_the_same(english: str, chinese: str) -> None:
    assert calls(text(chinese)) == calls(text(english))
    assert len(calls(text(english))) >= 3


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_code_is_the_same_but_for_what_is_said_of_it(english: str, chinese: str) -> None:
    plain = [line for line in blocks(text(chinese)) if not HAN.search(line)]
    assert set(plain) <= set(blocks(text(english)))


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_it_has_the_same_sections_and_tables(english: str, chinese: str) -> None:
    def shape(name: str) -> tuple[list[str], int]:
        return re.findall(r"^#+ ", text(name), re.MULTILINE), len(re.findall(r"^\|", text(name), re.MULTILINE))

    assert shape(chinese) == shape(english)


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_links_lead_where_those_of_the_english_page_lead(english: str, chinese: str) -> None:
    page = ROOT / chinese
    assert list(broken_links(page)) == []
    own = {str((ROOT / name).resolve()) for pair in PAIRS for name in pair}
    assert set(targets(chinese)) - own == set(targets(english)) - own


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_every_page_of_instructions_is_linked(name: str) -> None:
    missing = {str(path) for path in (ROOT / "docs" / "how-to").glob("*.md")} - set(targets(name))
    assert {Path(path).name for path in missing} == set()


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_the_readme_leads_to_it_and_it_leads_back(english: str, chinese: str) -> None:
    assert str((ROOT / chinese).resolve()) in targets("README.md")
    assert str((ROOT / english).resolve()) in targets(chinese)


@pytest.mark.parametrize("chinese", [chinese for _, chinese in PAIRS])
def test_its_prose_is_chinese(chinese: str) -> None:
    prose = [line for line in words(text(chinese)).split("\n\n") if len(line) > 40]
    assert len(prose) >= 10 and all(HAN.search(line) for line in prose)
