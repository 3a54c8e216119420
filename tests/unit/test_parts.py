"""What a stack's wheel may say of its requirements."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gpufleet.parts import Wheel

FILE = {"name": "tiny", "version": "1", "filename": "tiny-1-py3-none-any.whl", "sha256": "0" * 64}


def test_requirements_are_dropped_and_replaced() -> None:
    made = Wheel(**FILE, drop_requires=["a"], replace_requires=["b==1", "c[x]>=2; python_version < '3.12'"])
    assert made.replace_requires == ["b==1", "c[x]>=2; python_version < '3.12'"]


@pytest.mark.parametrize("wrong", ["", "b = 1", "b==", "b==1\nName: c", "https://x/b.whl"])
def test_what_is_no_requirement(wrong: str) -> None:
    with pytest.raises(ValidationError, match="replace_requires"):
        Wheel(**FILE, replace_requires=[wrong])


@pytest.mark.parametrize(("drop", "instead"), [(["b_c"], ["B-c==1"]), ([], ["b-c==1", "b.c==2"]), (["b-c", "b_c"], [])])
def test_one_fate_for_each(drop: list[str], instead: list[str]) -> None:
    with pytest.raises(ValidationError, match="name b-c more than once; keep one"):
        Wheel(**FILE, drop_requires=drop, replace_requires=instead)
