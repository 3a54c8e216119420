"""The page that is the reference of a stack's schema: valid, and with every key there is, each with a comment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from gpufleet import log_lines, parts, paths, stacks
from gpufleet.recipe import ByTrait
from gpufleet.schema import Data, read
from gpufleet.stacks import Stack

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "stack-example.yaml"
PARTS = [
    Stack,
    stacks.Versions,
    stacks.Option,
    parts.Uv,
    parts.Wheel,
    parts.GitPatches,
    parts.GitFile,
    parts.Source,
    parts.Compile,
    parts.Build,
    parts.Fetch,
    ByTrait,
    log_lines.Log,
    log_lines.LogLine,
    log_lines.When,
]


def example() -> Stack:
    return read(Stack, yaml.safe_load(PAGE.read_text(encoding="utf-8")), PAGE.name).model_copy(update={"path": PAGE})


def models(kind: Any) -> Iterator[type[Data]]:
    """The models of a type, and of all that their fields may hold."""
    if isinstance(kind, type) and issubclass(kind, Data):
        yield kind
        for field in kind.model_fields.values():
            yield from models(field.annotation)
    for part in get_args(kind):
        yield from models(part)


def held(value: Any) -> Iterator[Data]:
    """The models a value holds, at any depth."""
    if isinstance(value, Data):
        yield value
        value = [getattr(value, name) for name in type(value).model_fields]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from held(part)


def keys(kind: type[Data]) -> dict[str, str]:
    """The fields a page may have, and how it writes them."""
    return {name: field.alias or name for name, field in kind.model_fields.items() if not field.exclude}


def test_the_models_are_all_that_a_page_is_made_of() -> None:
    assert set(models(Stack)) == set(PARTS)


@pytest.mark.parametrize("kind", PARTS, ids=lambda kind: kind.__name__)
def test_the_example_has_every_key(kind: type[Data]) -> None:
    given = {name for part in held(example()) if type(part) is kind for name in part.model_fields_set}
    assert set(keys(kind)) - given == set()


def test_a_key_left_out_would_be_seen() -> None:
    whole = yaml.safe_load(PAGE.read_text(encoding="utf-8"))
    for entry in whole["wheels"]:
        entry.pop("rename", None)
    given = {
        name
        for part in held(read(Stack, whole, PAGE.name))
        if type(part) is parts.Wheel
        for name in part.model_fields_set
    }
    assert set(keys(parts.Wheel)) - given == {"rename"}


@pytest.mark.parametrize("kind", PARTS, ids=lambda kind: kind.__name__)
def test_every_key_has_a_comment(kind: type[Data]) -> None:
    said = set(re.findall(r"^[ -]*(\w+):.* # \S", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(keys(kind).values()) - said == set()


def test_its_flags_are_known_to_its_table() -> None:
    stack = example()
    assert stack.table is not None
    parted = [*stack.by_trait.values(), *stack.options.values()]
    args = {*stack.args, *(flag for part in parted for flag in part.args)}
    assert {flag for flag in args if flag not in stack.table.flags} == set()


def test_files_are_named_as_their_distributions() -> None:
    stack = example()
    for wheel in stack.wheels:
        assert wheel.filename.startswith(f"{wheel.name.replace('-', '_')}-{wheel.version}-")
    assert stack.build is not None and stack.build.filename == f"{stack.build.name}-{stack.build.version}.tar.gz"


def test_it_is_no_stack_of_the_catalogue_and_the_reference_links_it() -> None:
    assert PAGE.parent not in paths.stack_folders()
    assert not (paths.product_files() / "stacks" / PAGE.name).exists()
    assert "](stack-example.yaml)" in (PAGE.parent / "stacks.md").read_text(encoding="utf-8")
