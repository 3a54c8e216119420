"""`gpufleet patches check` on the genuine wheels, from the folder that GPUFLEET_WHEELS names, else from the index.

Sources take part where GPUFLEET_GIT names a mirror of their repositories, as the setting mirrors.git does.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpufleet import catalogue, paths
from gpufleet.settings import Mirrors
from gpufleet.stacks import Stack
from gpufleet.wheelhouse.checking import Places, against, own
from gpufleet.wheelhouse.store import Store, default_root

pytestmark = pytest.mark.large

MIRROR = os.environ.get("GPUFLEET_GIT")
WHEELS = [Path(os.environ["GPUFLEET_WHEELS"])] if "GPUFLEET_WHEELS" in os.environ else []
PLACES = Places(Store(default_root()), Mirrors(git=MIRROR), WHEELS)
STACKS = catalogue.load(Stack, "stack", paths.stack_folders())
OWN = [
    stack for stack in STACKS.values() if any(part.patches for part in [*stack.wheels, *filter(None, [stack.build])])
]


@pytest.mark.parametrize("stack", OWN, ids=lambda stack: stack.name)
def test_every_hunk_lies_where_its_patch_says(stack: Stack) -> None:
    found = list(own([stack if MIRROR else stack.model_copy(update={"sources": []})], PLACES))
    assert found
    for item in found:
        assert not item.failed, "\n".join(item.lines())
        assert [seen for seen in item.seen if seen.moved] == []


def test_the_patches_of_0_27_1_fail_on_0_24_0_where_it_is_another() -> None:
    stack = STACKS["vllm-0.27.1-sm75"]
    (entry,) = stack.wheels
    found = against(stack, entry, PLACES, lambda: PLACES.version(stack, entry, "0.24.0"))
    fates: dict[str, set[str]] = {}
    for seen in found.seen:
        fates.setdefault(seen.patch, set()).add("fails" if seen.error else "moved" if seen.moved else "applies")
    assert found.failed and found.problem is None
    assert fates["0002-flashinfer-attention-sm75.patch"] == {"moved"}
    assert "fails" in fates["0001-unquantised-mtp-draft.patch"]
