"""Pages of models: sources, a replaced MTP head, and the directory on the box that comes of them."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet.errors import ConfigError
from gpufleet.models import Model, MtpHead, Source
from gpufleet.schema import read
from tests.unit.fleets import model

COMMIT = "a" * 40
FILES = {"config.json": {"size": 2 << 20, "sha256": "1" * 64}}
HEAD = {"model-mtp.safetensors": {"size": 3 << 20, "sha256": "2" * 64}}
HUB = {"hub": "org/tiny", "commit": COMMIT, "files": FILES}
HEAD_HUB = {"hub": "org/head", "commit": "b" * 40, "files": HEAD}


def made(source: dict[str, Any], head: dict[str, Any] | None = None) -> Model:
    return model(source=source, **({"mtp_head": {"source": head}} if head else {}))


@pytest.mark.parametrize(
    "source",
    [
        HUB,
        {"http": "https://files.example/tiny", "files": FILES},
        {"path": "/srv/m"},
        {"path": "/srv/m", "files": FILES},
    ],
)
def test_places_a_model_comes_from(source: dict[str, Any]) -> None:
    assert read(Source, source, "page").model_dump(exclude_defaults=True) == source


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({}, "one of `hub`, `http` and `path`, not none"),
        (HUB | {"path": "/srv/m"}, "not hub and path"),
        ({"hub": "org/tiny", "files": FILES}, "`hub` and `commit` go together"),
        ({"path": "/srv/m", "commit": COMMIT}, "`hub` and `commit` go together"),
        ({"hub": "org/tiny", "commit": COMMIT}, "`hub` needs `files`"),
        ({"http": "https://files.example/tiny"}, "`http` needs `files`"),
        (HUB | {"hub": "tiny"}, "hub: must be a repository of the hub, owner/name"),
        (HUB | {"hub": "org/tiny/x"}, "hub: must be a repository of the hub, owner/name"),
        (HUB | {"commit": "main"}, "commit: must be a whole commit"),
    ],
)
def test_a_source_that_is_none(source: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(Source, source, "page")


def test_the_directory_is_the_revision() -> None:
    found = made(HUB)
    assert (found.directory, found.link, found.size_mib) == (found.revision, None, 2)
    local = made({"path": "/srv/m", "files": FILES})
    assert (local.directory, local.link, local.size_mib) == (local.revision, "/srv/m", 0)


def test_a_replaced_head_is_another_directory_and_another_release() -> None:
    plain, replaced = made(HUB), made(HUB, HEAD_HUB)
    assert replaced.directory.startswith(f"{plain.revision}+") and len(replaced.directory) == len(plain.revision) + 13
    assert replaced.digest != plain.digest
    assert replaced.size_mib == 5
    again = made(HUB, {"http": "https://files.example/head", "files": HEAD})
    assert (again.directory, again.digest) == (replaced.directory, replaced.digest)
    other = made(
        HUB,
        {
            "http": "https://files.example/head",
            "files": {**HEAD, **{"model-mtp.safetensors": {"size": 1, "sha256": "3" * 64}}},
        },
    )
    assert other.directory != replaced.directory and other.digest != replaced.digest


def test_a_head_that_lies_on_the_box() -> None:
    local = made({"path": "/srv/m"}, {"path": "/srv/head"})
    assert local.link is None and local.places == ["/srv/m", "/srv/head"] and local.size_mib == 0
    assert local.directory != made({"path": "/srv/m"}, {"path": "/srv/other"}).directory
    assert local.directory != made({"path": "/srv/n"}, {"path": "/srv/head"}).directory, "its links lead elsewhere"


def test_a_head_is_among_the_files_of_its_source() -> None:
    with pytest.raises(ConfigError, match=r"'model-mtp.safetensors' is not among the files of its source"):
        read(MtpHead, {"source": HEAD_HUB | {"files": FILES}}, "mtp_head")


def test_the_same_files_from_elsewhere_are_the_same_model() -> None:
    elsewhere = made({"http": "https://files.example/tiny", "files": FILES})
    assert elsewhere.digest == made(HUB).digest
    changed = made(HUB | {"files": {"config.json": {"size": 2 << 20, "sha256": "4" * 64}}})
    assert changed.digest != elsewhere.digest
