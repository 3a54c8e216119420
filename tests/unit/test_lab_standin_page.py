"""The stand-in engine reads the pages that gpufleet writes as a YAML library does."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gpufleet.spelling import config
from lab.standin.page import read

FLAGS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.-]{0,20}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    [
        "",
        "null",
        "no",
        "1e5",
        "1.5",
        "0x1f",
        "012",
        "1:30",
        "~",
        "[]",
        "{}",
        "- a",
        "a: b",
        "a #b",
        " a",
        "a ",
        "=",
        "<<",
    ]
)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e18, 1e18) | TEXTS
LEAVES = SCALARS | st.none() | st.dictionaries(TEXTS, SCALARS, max_size=3)
ARGS = st.dictionaries(FLAGS, LEAVES | st.lists(LEAVES, max_size=4), max_size=6)


@example({"a": "?0"})
@given(ARGS)
def test_it_reads_what_a_yaml_library_reads(args: dict[str, Any]) -> None:
    page = config(args)
    assert read(page) == (yaml.safe_load(page) or {}), page


@pytest.mark.parametrize(
    "text",
    [
        "many words " * 2000,
        "x" * 30_000,
        "'quoted' " * 3000,
        "ü\n\n  lines\tand\n blanks \n",
        "\x85\u2028 \ufeff\x07",
        "long \x07 " * 4000,
        "line\nline " * 3000,
    ],
)
def test_long_and_odd_texts(text: str) -> None:
    page = config({"a": text, "b": [text, 1], "c": 2})
    assert read(page) == yaml.safe_load(page) == {"a": text, "b": [text, 1], "c": 2}


@pytest.mark.parametrize(
    "page",
    ["a: [1, 2]\n", "a:\n  b: 1\n", "a: &x 1\n", "a: |\n  b\n", "a\n", "a: 'b\n", "- a\n", "a:\n- - b\n", "  a: 1\n"],
)
def test_what_gpufleet_does_not_write_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match="line "):
        read(page)
