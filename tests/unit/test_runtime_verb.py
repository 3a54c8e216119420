"""The options uv gets for an owner's mirrors."""

from __future__ import annotations

import pytest

from hostkit import runtime

PYPI, TORCH = "http://192.0.2.1:80/simple/", "https://torch.example/cpu"
INSECURE = ["--allow-insecure-host", "192.0.2.1"]
BOTH = ["--index", TORCH, "--index-strategy", "unsafe-best-match"]


@pytest.mark.parametrize(
    ("index", "options"),
    [
        ({"pypi": None, "torch": None}, []),
        ({"pypi": None, "torch": TORCH}, BOTH),
        ({"pypi": PYPI, "torch": TORCH}, ["--default-index", PYPI, *BOTH, *INSECURE]),
        ({"pypi": PYPI, "torch": PYPI}, ["--default-index", PYPI, *INSECURE, *INSECURE]),
    ],
)
def test_mirrors_take_the_place_of_the_default_index(index: dict[str, str | None], options: list[str]) -> None:
    assert runtime.index_options(index) == options
