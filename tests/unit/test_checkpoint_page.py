"""Pages as text: a new one, and an owner's whose recipe and comments stay."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpufleet import paths
from gpufleet.architecture import Architecture
from gpufleet.checkpoint import page
from gpufleet.models import Model, MtpHead, Source
from gpufleet.schema import read
from tests.unit.architectures import AWQ_35B

SHA = "ab" * 32
SOURCE = read(Source, {"hub": "org/m", "commit": "1" * 40, "files": {"config.json": {"size": 9, "sha256": SHA}}}, "x")
OTHER = read(Source, {"http": "http://files/m", "files": {"config.json": {"size": 9, "sha256": "0e" + SHA[2:]}}}, "x")
HEAD = read(
    MtpHead,
    {"source": {"http": "http://files/h", "files": {"model-mtp.safetensors": {"size": 1, "sha256": SHA}}}},
    "x",
)


def values(
    source: Source = SOURCE, head: MtpHead | None = None, shape: Architecture | None = AWQ_35B
) -> dict[str, Any]:
    return page.values("abc123", source, head, shape)


def as_model(text: str) -> Model:
    return read(Model, yaml.safe_load(text), "page")


def test_a_new_page_is_one() -> None:
    made = as_model(page.new("m", "org/m, AWQ", values(head=HEAD)))
    assert (made.name, made.title, made.served_name, made.revision) == ("m", "org/m, AWQ", "m", "abc123")
    assert (made.source, made.mtp_head, made.architecture) == (SOURCE, HEAD, AWQ_35B)
    assert made.gate.expect.contains == "42" and made.args == {}


def test_a_file_is_one_line_of_it() -> None:
    text = page.new("m", "t", values())
    assert f"    config.json: {{size: 9, sha256: {SHA}}}\n" in text
    assert "  layers: {full_attention: 10, linear_attention: 30}\n" in text
    assert "mtp_head" not in text and "#" not in text


@pytest.mark.parametrize(
    "text", ["1e5", "0123", "yes", "null", "a: b", "a # b", "{x}", "a, b", "'", '"', "1" * 40, "é"]
)
def test_plain_values_come_back_as_they_were(text: str) -> None:
    assert yaml.safe_load(page.block("k", {"deep": {text: text}}))["k"] == {"deep": {text: text}}
    assert yaml.safe_load(page.block("k", text))["k"] == text


OWNERS = """\
# mine
schema: 1
name: m
title: a title of mine
revision: old
source:
  path: /srv/m
  # where I put it

# sizes of my own
architecture:
  family: x
  layers: {full_attention: 1}
served_name: medium # what my clients call
args:
  max-model-len: 4096 # enough
by_trait:
  sm75:
    args: {a: 1}
"""


def test_the_recipe_of_an_owner_stays_with_its_comments() -> None:
    text = page.renew(OWNERS, values())
    made = as_model(text)
    assert (made.source, made.architecture, made.revision) == (SOURCE, AWQ_35B, "abc123")
    for line in ("# mine", "title: a title of mine", "# sizes of my own", "served_name: medium # what my clients call"):
        assert f"{line}\n" in text
    assert text.endswith(OWNERS[OWNERS.index("served_name:") :])
    assert page.renew(text, values()) == text


def test_what_is_the_same_keeps_its_form() -> None:
    made = page.new("m", "t", values())
    commented = made.replace("  hub: org/m\n", "  hub: 'org/m' # the one\n")
    assert page.renew(commented, values()) == commented


def test_keys_come_and_go() -> None:
    bare = OWNERS.replace(OWNERS[OWNERS.index("# sizes") : OWNERS.index("served_name:")], "")
    with_head = page.renew(bare, values(OTHER, HEAD))
    made = as_model(with_head)
    assert (made.source, made.mtp_head, made.architecture) == (OTHER, HEAD, AWQ_35B)
    assert [key for key in yaml.safe_load(with_head) if key in page.RENEWED] == list(page.RENEWED)
    assert as_model(page.renew(with_head, values(OTHER))).mtp_head is None
    kept = page.renew(with_head, {"revision": "r2"})
    assert kept == with_head.replace("revision: abc123", "revision: r2")


@pytest.mark.parametrize("name", [path.stem for path in sorted((paths.product_files() / "models").glob("*.yaml"))])
def test_pages_that_come_along_keep_their_recipes(name: str) -> None:
    text = (paths.product_files() / "models" / f"{name}.yaml").read_text(encoding="utf-8")
    before, after = as_model(text), as_model(page.renew(text, values()))
    assert (after.source, after.architecture) == (SOURCE, AWQ_35B)
    renewed = set(page.RENEWED)
    assert before.model_dump(exclude=renewed) == after.model_dump(exclude=renewed)
