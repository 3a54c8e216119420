"""Reference pages have a row for every key of what they describe, and no other; recipes for every value of a box."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from gpufleet import architecture, catalogue, log_lines, models, parts, paths, planning, scenario, stacks
from gpufleet.document import document
from gpufleet.models import Model
from gpufleet.recipe import ByTrait, Recipe
from gpufleet.schema import Data
from gpufleet.stacks import Stack
from tests.unit.test_reference_boxes import REFERENCE

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = ROOT / "docs" / "reference"
KEYS = [  # the page, its heading, what is described there, what its keys begin with
    ("stacks", "A page", Stack, ""),
    ("stacks", "uv", parts.Uv, "uv."),
    ("stacks", "wheels", parts.Wheel, "wheels."),
    ("stacks", "sources", parts.Source, "sources."),
    ("stacks", "compile", parts.Compile, "compile."),
    ("stacks", "build", parts.Build, "build."),
    ("stacks", "patches_from", parts.GitPatches, ""),
    ("stacks", "versions", stacks.Versions, "versions."),
    ("stacks", "by_trait", ByTrait, "by_trait."),
    ("stacks", "options", stacks.Option, "options."),
    ("stacks", "log", log_lines.Log, "log."),
    ("stacks", "A line of the log", log_lines.LogLine, ""),
    ("stacks", "when", log_lines.When, "when."),
    ("models", "A page", Model, ""),
    ("models", "source", models.Source, "source."),
    ("models", "mtp_head", models.MtpHead, "mtp_head."),
    ("models", "Recipes", Recipe, "engines.lmdeploy."),
    ("models", "architecture", architecture.Architecture, "architecture."),
    ("models", "layers", architecture.Layers, "architecture.layers."),
    ("models", "linear", architecture.Linear, "architecture.linear."),
    ("models", "mtp", architecture.Mtp, "architecture.mtp."),
    ("models", "gate", models.Gate, "gate."),
    ("models", "expect", models.Expectation, "gate.expect."),
    ("topology", "The scenario file", scenario.Scenario, ""),
    ("topology", "A card", scenario.Gpu, "gpus."),
]


def section(path: Path, heading: str) -> str:
    """The text below a heading, up to the next one of any level."""
    found = re.split(rf"^#+ {re.escape(heading)}$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(found) == 2, f"{path.name}: {heading}"
    return re.split(r"^#+ ", found[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


def first(text: str) -> list[str]:
    """The names in backquotes of all first cells."""
    return [name for row in rows(text) for name in re.findall(r"`([^`]+)`", row[0])]


@pytest.mark.parametrize(
    ("page", "heading", "kind", "prefix"), KEYS, ids=lambda value: getattr(value, "__name__", None)
)
def test_every_key_has_its_row_and_no_other(page: str, heading: str, kind: type[Data], prefix: str) -> None:
    fields = {name: field for name, field in kind.model_fields.items() if not field.exclude}
    found = first(section(REFERENCES / f"{page}.md", heading))
    assert sorted(found) == sorted(prefix + (field.alias or name) for name, field in fields.items())


@pytest.mark.parametrize(
    ("page", "heading", "kind", "prefix"), KEYS, ids=lambda value: getattr(value, "__name__", None)
)
def test_what_is_required_is_said_to_be(page: str, heading: str, kind: type[Data], prefix: str) -> None:
    for row in rows(section(REFERENCES / f"{page}.md", heading)):
        name = row[0].strip("`").removeprefix(prefix)
        field = kind.model_fields.get(name) or kind.model_fields[f"{name}_"]
        assert field.is_required() == (row[2] == "required"), row[0]


def test_what_a_stack_can_provide_is_listed() -> None:
    assert sorted(first(section(REFERENCES / "stacks.md", "provides"))) == sorted(get_args(stacks.Provided))


def test_the_stacks_that_come_along_are_listed_and_those_that_can_be_installed() -> None:
    found = catalogue.load(Stack, "stack", paths.stack_folders())
    table = {
        row[0].strip("`"): (row[2], row[3]) for row in rows(section(REFERENCES / "stacks.md", "Those that come along"))
    }
    assert {name: row[1] for name, row in table.items()} == {
        name: "yes" if stack.installable else "not yet" for name, stack in found.items()
    }
    assert {name: row[0] != "no" for name, row in table.items()} == {
        name: bool(stack.default_for) for name, stack in found.items()
    }


def test_the_models_that_come_along_are_listed_with_their_folders() -> None:
    found = catalogue.load(Model, "model", paths.model_folders())
    table = rows(section(REFERENCES / "models.md", "Those that come along"))
    assert {row[0].strip("`"): row[2].strip("`") for row in table} == {
        name: model.source.path for name, model in found.items()
    }


def test_the_json_document_is_described_key_by_key() -> None:
    topology = ROOT / "lab" / "topologies" / "dual-2080ti-nv2.json"
    found = document(
        planning.of_topology(scenario.page(topology), str(topology), planning.overrides([], ["qwen3.8-27b-awq"]))
    )
    (box,) = found["boxes"]
    (instance,) = box["instances"]
    page = REFERENCES / "plan.md"
    for heading, part in (("A box", box), ("An instance", instance), ("memory", instance["memory"])):
        listed = [name for row in rows(section(page, heading)) for name in re.findall(r"`(\w+)`", row[0])]
        assert sorted(listed) == sorted(part), heading
    (row,) = [row for row in rows(section(page, "A box")) if row[0] == "`findings`"]
    assert set(box["findings"][0]) <= set(re.findall(r"`(\w+)`", row[1]))


def test_the_scenarios_that_come_along_are_listed() -> None:
    page = ROOT / "docs" / "how-to" / "plan-before-you-deploy.md"
    listed = [row[0].strip("`") for row in rows(section(page, "The scenarios that come along"))]
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "lab" / "topologies").glob("*.json"))


def test_what_the_page_says_of_each_scenario_is_what_is_planned() -> None:
    page = ROOT / "docs" / "how-to" / "plan-before-you-deploy.md"
    for row in rows(section(page, "The scenarios that come along")):
        topology = ROOT / "lab" / "topologies" / f"{row[0].strip('`')}.json"
        (found,) = planning.of_topology(
            scenario.page(topology), str(topology), planning.overrides([], ["qwen3.8-27b-awq"])
        )
        assert {item.stack.name for item in found.plan.instances} == {row[1].strip("`")}
        groups = [tuple(map(int, group.split(","))) for group in re.findall(r"\d+(?:,\d+)*(?= \(|;|$)", row[2])]
        assert groups == [item.gpus for item in found.plan.instances if item.gpus]
        sizes = {f"{item.memory.kv_tokens:,}" for item in found.plan.instances if item.memory}
        assert sizes == ({row[3]} if row[3] else set())


def part_of_recipes(beginning: str) -> str:
    """A part of the page: from the heading that begins so to the next of its level."""
    parts = re.split(r"^## ", (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    (part,) = [part for part in parts if part.startswith(beginning)]
    return part


def test_every_value_of_the_recipes_is_marked() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    lines = [
        line.strip("|").split(" |") for line in page.splitlines() if re.match(r"\| (?!(value|variable|trap) )", line)
    ]
    assert len(lines) > 100
    for row in lines:
        assert len(row) == 3 and re.match(r" (verbatim|superseded|unproven)\b", row[1]), row[0]


@pytest.mark.parametrize("name", REFERENCE)
def test_every_flag_and_variable_of_a_reference_box_is_in_its_recipe(name: str) -> None:
    _, _, _, args, env = REFERENCE[name]
    box = part_of_recipes(f"Box {name[0]}:")
    assert [flag for flag in args if f"`{flag}`" not in box] == []
    named = set(re.findall(r"`([A-Z][A-Z0-9_]+)[`=]", box + part_of_recipes("What every box gets")))
    assert set(env) <= named
