"""docs/by-hand.md: each unit by hand has the plan's flags and variables, but for what the page says is otherwise."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from tests.unit.test_docs_reference import ROOT, first, rows, section
from tests.unit.test_reference_boxes import REFERENCE, reference

PAGE = ROOT / "docs" / "by-hand.md"
BOXES = {  # heading: the reference box
    "A1: Qwen3.8-27B AWQ": "A1 with a bridge",
    "A2: Ornith-1.5-35B-A3B AWQ": "A2 with a bridge",
    "Box B: two RTX 2080 Ti 22 GB with NVLink, vLLM 0.24.0": "B",
    "Box C: two RTX 3090 with NVLink, vLLM 0.27.1 as published": "C",
}


def unit(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Flags and variables of the unit that a section prints."""
    block = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))
    (start,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", block, re.MULTILINE)
    env = dict(item.split("=", 1) for item in re.findall(r"^Environment=(.+)$", block, re.MULTILINE))
    words = shlex.split(start.replace("\\\n", " "))
    args: dict[str, Any] = {}
    for at, word in enumerate(words):
        if word.startswith("--") and word != "--model":
            given = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("--") else None
            off = given is None and word.startswith("--no-")
            args[word[5:] if off else word[2:]] = not off if given is None else value(given)
    return args, env


def value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def table_of(text: str) -> str:
    return text.split("Otherwise:\n", 1)[1]


@pytest.mark.parametrize("heading", BOXES)
def test_a_unit_by_hand_is_what_is_planned(heading: str) -> None:
    topology, model, stack, _, wanted = REFERENCE[BOXES[heading]]
    found = reference(topology, model, stack)
    text = section(PAGE, heading)
    args, env = unit(text)
    differ = {key for key in args.keys() | found.args.keys() if args.get(key) != found.args.get(key)}
    differ |= {key for key in env.keys() | wanted.keys() if env.get(key) != found.env.get(key)}
    assert differ == set(first(table_of(text)))
    assert f"--topology lab/topologies/{topology}.json --model {model}" in text and f'"serve": ["{model}"]' in text
    assert len(args) >= 20 and len(env) >= 3


def test_every_step_has_both_sides() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(lines) > 60
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split(" |")]
        assert len(cells) == 3 and all(cells), line


def test_files_that_it_names_exist_and_have_the_keys_it_names() -> None:
    text = PAGE.read_text(encoding="utf-8")
    short = {word: ROOT / path for word, path in re.findall(r"\*([\w.]+)\* (?:is)?\s*`(files/stacks/[^`]+)`", text)}
    assert len(short) == 4
    found = [row for row in rows(text) if len(row) == 3]  # not the lines that part a table from its head
    assert len(found) > 60
    for row in found:
        for word, key in re.findall(r"\*([\w.]+)\* `(\w+)", row[2]):
            assert re.search(rf"^ *{key}:", short[word].read_text(encoding="utf-8"), re.MULTILINE), row


def test_nothing_of_it_leads_out_of_the_repository() -> None:
    assert "shared/" not in PAGE.read_text(encoding="utf-8")
