"""BOX/INSTANCE of a command, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpufleet.catalogue import Catalogue
from gpufleet.errors import ConfigError
from gpufleet.fleet import Fleet
from gpufleet.plan import Box
from gpufleet.target import Target, instances_of, one_box, parse, release_of

FACTS: dict[str, Any] = {
    "instances": {
        "qwen": {"current": "aaaa000000000000", "releases": ["aaaa000000000000", "bbbb000000000000"]},
        "ornith": {"current": "cccc000000000000", "releases": ["cccc000000000000", "bbbb111111111111"]},
        "old": {"current": None, "releases": ["dddd000000000000"]},
    }
}


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    boxes = {name: Box(name, {}, ("fleet", "lab")) for name in ("turing-1", "turing-2")}
    return Fleet(
        tmp_path, tmp_path / "inventory/home.py", boxes, {}, {}, Catalogue("stack", {}), Catalogue("model", {})
    )


def test_a_box_and_an_instance_of_one(fleet: Fleet) -> None:
    assert parse(fleet, "turing-1") == Target("turing-1")
    assert parse(fleet, "turing-2/qwen") == Target("turing-2", "qwen")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("turing-3", "there is no box 'turing-3' in the inventory; did you mean 'turing-"),
        ("lab", "'lab' is a group; this is done on one box"),
        ("turing-1/", "names no instance"),
        ("turing-1/a/b", "'turing-1/a/b' names no instance; write turing-1, or turing-1/INSTANCE"),
        ("turing-1//", "names no instance"),
        ("sm75", "'sm75' is a group; this is done on one box"),
        ("", "there is no box '' in the inventory; known: turing-1, turing-2"),
    ],
)
def test_a_wrong_box_is_told_the_nearest(fleet: Fleet, word: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(fleet, word)
    assert said in str(caught.value)


def test_a_whole_box_is_named_alone(fleet: Fleet) -> None:
    assert one_box(fleet, "turing-1") == "turing-1"
    for word, said in (
        ("turing-1/qwen", "'turing-1/qwen': this is done on a whole box; write turing-1"),
        ("lab", "'lab' is a group; this is done on one box: name it"),
        ("turing-3", "there is no box 'turing-3' in the inventory; did you mean 'turing-"),
    ):
        with pytest.raises(ConfigError, match=said):
            one_box(fleet, word)


def test_a_box_means_all_that_it_serves() -> None:
    assert instances_of(FACTS, Target("b")) == ["qwen", "ornith"]
    assert instances_of(FACTS, Target("b", "old")) == ["old"]
    with pytest.raises(ConfigError, match="b has no instance 'qwn'; did you mean 'qwen'"):
        instances_of(FACTS, Target("b", "qwn"))
    with pytest.raises(ConfigError, match="b has no instance 'qwn'; it has none"):
        instances_of({}, Target("b", "qwn"))
    with pytest.raises(ConfigError, match="b serves nothing: deploy it first"):
        instances_of({"instances": {}}, Target("b"))


def test_a_release_is_meant_by_the_beginning_of_its_digest() -> None:
    both = ["qwen", "ornith"]
    assert release_of(FACTS, Target("b"), both, "cccc") == ("ornith", "cccc000000000000")
    assert release_of(FACTS, Target("b"), ["qwen"], "bbbb") == ("qwen", "bbbb000000000000")
    assert release_of(FACTS, Target("b"), both, "bbbb000000000000") == ("qwen", "bbbb000000000000")
    with pytest.raises(ConfigError, match=r"means bbbb000000000000 .qwen., bbbb111111111111 .ornith. of b"):
        release_of(FACTS, Target("b"), both, "bbbb")
    with pytest.raises(ConfigError, match=r"'c' is no release that b keeps; it has: aaaa"):
        release_of(FACTS, Target("b"), both, "c")
