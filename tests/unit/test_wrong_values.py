"""What is said of a wrong value: the key, what must be there in words, no password, no cause that is none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from gpufleet import planning, scenario
from gpufleet.errors import ConfigError
from gpufleet.inventory import load
from gpufleet.layers import checked
from gpufleet.models import Model
from gpufleet.schema import WORDS
from gpufleet.settings import Settings
from gpufleet.stacks import Stack
from tests.unit.fleets import owner

LOGIN = "https://me:secret@h/s"


def said(values: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as error:
        checked(values, "here")
    return [problem.removeprefix("here: ") for problem in error.value.problems]


@pytest.mark.parametrize("key", ["pypi", "torch", "git", "files", "models", "hub", "cuda", "cuda_key"])
@pytest.mark.parametrize("address", [LOGIN, "https://me:sec/ret@h/s", "https://me:sec'ret@h/s", "http://secret@[x/s"])
def test_a_login_is_not_shown(key: str, address: str) -> None:
    (line,) = said({"mirrors": {key: address}})
    assert line.startswith(f"mirrors.{key}: ") and "<hidden>@" in line
    assert not re.search("sec.?ret", line)


def test_what_to_do_with_a_login() -> None:
    assert said({"mirrors": {"pypi": LOGIN}}) == [
        "mirrors.pypi: an address with a login is in every log: it goes into pip's configuration "
        "(it is 'https://<hidden>@h/s')"
    ]
    assert "let the server give the files without" in said({"mirrors": {"hub": LOGIN}})[0]


def test_a_login_in_the_words_of_a_wrong_call() -> None:
    with pytest.raises(ConfigError) as error:
        planning.overrides([f"mirrors..pypi={LOGIN}"], [LOGIN])
    assert len(error.value.problems) == 2 and "secret" not in str(error.value)


@pytest.mark.parametrize("values", [{"serve_env": {"HF_TOKEN": 17041}}, {"serve_env": ["HF_TOKEN=x17041y"]}])
def test_a_secret_variable_is_not_shown(values: dict[str, Any]) -> None:
    assert "17041" not in said(values)[0]


@pytest.mark.parametrize("kind", [Settings, Model, Stack, scenario.Scenario])
def test_every_pattern_has_its_words(kind: type[BaseModel]) -> None:
    assert set(patterns(kind.model_json_schema())) <= set(WORDS)


def patterns(schema: Any) -> Iterator[str]:
    """All regular expressions of a schema, those of keys included."""
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        yield from schema.get("patternProperties", {})
    for item in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from patterns(item)


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"host": {"models": "rel"}}, ["host.models: must be a path from the root, such as /srv/models"]),
        ({"mirrors": {"files": "http://h/"}}, ["mirrors.files: must be an address that ends in {filename}"]),
        (
            {"serve": [{"model": "q", "replaces": ["vllm"]}]},
            ["serve.0.replaces.0: must be the whole name of a service"],
        ),
        ({"serve": ["a b"]}, ["serve.0: must be a name: letters"]),
        ({"serve": ["a" * 300]}, ["serve.0: must be a name: .* 100 characters at most; this has 300"]),
        # Of a union only what is for the given type.
        ({"serve": [{"model": "q", "prt": 1}]}, ["unknown key 'serve.0.prt'; did you mean 'port'"]),
        ({"serve": [3]}, ["serve.0: must be a text or a mapping .it is 3"]),
        ({"rollout": {"batch": 0}}, ["rollout.batch: must be greater than or equal to 1 .it is 0"]),
        ({"rollout": {"batch": "200%"}}, ["rollout.batch: must be a share from 1% to 100%"]),
        ({"host": {"power_limit": "x"}}, ["host.power_limit: must be a whole number or a mapping"]),
        ({"host": {"power_limit": {"RTX": "x"}}}, ["host.power_limit.RTX: must be a whole number .it is 'x'"]),
        # The key is named, whatever it is called.
        ({"serve_env": {"A": 1}}, ["serve_env.A: must be a text .it is 1"]),
        ({"serve_env": {"A B": "1"}}, ["serve_env.A B: must be the name of a variable"]),
        ({"serve": [{"model": "q", "env": {"A": 1}}]}, ["serve.0.env.A: must be a text"]),
    ],
)
def test_one_line_with_the_right_cause(values: dict[str, Any], lines: list[str]) -> None:
    found = said(values)
    assert len(found) == len(lines) and all(map(re.match, lines, found)), found


def test_a_scenario_with_a_driver_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "box.json").write_text(json.dumps({"name": "x", "driver": "new"}))
    with pytest.raises(ConfigError, match=r'driver: must be a version such as "580\.159\.03"'):
        scenario.page(tmp_path / "box.json")


def test_a_box_whose_name_is_too_long(tmp_path: Path) -> None:
    root = owner(tmp_path, inventory__home="")
    with pytest.raises(ConfigError, match="dots and dashes, at most 63 of them: this has 300"):
        load([("b" * 300, {"ssh_hostname": "192.168.1.5"})], root / "inventory" / "home.py")
