"""Models from an owner's mirror: another address for the same files, and nothing else is another."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gpufleet.plan import BoxPlan
from gpufleet.render import release
from gpufleet.settings import Mirrors
from gpufleet.wheelhouse.mirror import of_model
from operations.model_spec import spec
from tests.unit.fleets import SHA, cpu_facts, model, plan

MIRROR = "http://192.168.1.5/models/{path}"
FETCHED = {"http": "https://hub.example/org/tiny", "files": {"config.json": {"size": 2, "sha256": SHA}}}


def planned(mirror: str | None, source: dict[str, Any] = FETCHED) -> BoxPlan:
    data = {"mirrors": {"models": mirror}} if mirror else {}
    return plan(cpu_facts(), models=[model(source=source)], data=data)


@pytest.mark.parametrize(
    ("address", "mirror", "expected"),
    [
        ("https://hub.example/org/tiny", None, "https://hub.example/org/tiny"),
        ("https://hub.example/org/tiny", MIRROR, "http://192.168.1.5/models/org/tiny"),
        ("http://192.0.2.7:8080/Tiny/", MIRROR, "http://192.168.1.5/models/Tiny/"),
        ("https://hub.example/org/tiny/resolve/main", "http://m:81/{path}", "http://m:81/org/tiny/resolve/main"),
        ("https://hub.example", MIRROR, "http://192.168.1.5/models/"),
        (None, MIRROR, None),
        (None, None, None),
    ],
)
def test_a_mirror_takes_the_place_of_the_host(address: str | None, mirror: str | None, expected: str | None) -> None:
    assert of_model(address, mirror) == expected


@pytest.mark.parametrize("wrong", ["http://m/models", "file:///srv/{path}", "http://me:secret@m/{path}", "{path}"])
def test_what_is_no_mirror_of_models_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError, match="models"):
        Mirrors(models=wrong)


def told(mirror: str | None, source: dict[str, Any] = FETCHED) -> dict[str, Any]:
    """What the kit is told of the one model."""
    found = planned(mirror, source)
    return spec(found, found.models[0])


def test_the_kit_is_told_the_mirror_and_the_same_files() -> None:
    assert told(None)["http"] == FETCHED["http"]
    assert told(MIRROR) == {**told(None), "http": "http://192.168.1.5/models/org/tiny"}
    assert told(MIRROR)["files"] == FETCHED["files"]


def test_a_model_that_is_on_the_box_stays_there() -> None:
    there = {"path": "/srv/models/tiny"}
    assert told(MIRROR, there) == told(None, there)
    assert told(MIRROR, there)["http"] is None and told(MIRROR, there)["path"] == there["path"]


def test_a_mirror_makes_no_other_release() -> None:
    (there,), (mirrored,) = planned(None).instances, planned(MIRROR).instances
    assert release(there) == release(mirrored)
    others = {"config.json": {"size": 2, "sha256": "1" * 64}}
    assert release(planned(None, {**FETCHED, "files": others}).instances[0]).digest != release(there).digest
