"""The whole estimate against the recipes of recipes.md and field-problems.md and against what other boxes logged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gpufleet.architecture import Architecture
from tests.unit.architectures import AWQ_27B, AWQ_35B, FP8_27B
from tests.unit.memory_logged import AUTOROUND, FOUR_3090, FP8_ON_3090, MIXTURE, ROWS, SIX
from tests.unit.memory_recipes import (
    A1,
    A2,
    BOX_B,
    BOX_C,
    DRAFTING,
    POOLS,
    RTX_2080_TI,
    RTX_3090,
    RUNNING,
    TEXT,
    V100_16,
    Case,
    memory,
)


@pytest.mark.parametrize(("dtype", "measured"), [("fp8_e4m3", 207_692), ("auto", 115_714)])
def test_box_b_to_the_token(dtype: str, measured: int) -> None:
    found = memory(FP8_27B, RTX_2080_TI, **BOX_B | {"kv_cache_dtype": dtype})
    assert found.kv_tokens == measured
    assert found.fits


def test_box_b_uses_what_was_seen() -> None:
    """21,720 MiB of 22,528: the budget, what is beside it, and the driver's own."""
    found = memory(FP8_27B, RTX_2080_TI, **BOX_B)
    assert found.budget_mib + found.context_mib + 22528 - found.usable_mib == pytest.approx(21_720, rel=0.02)


@pytest.mark.parametrize("case", [AUTOROUND, FOUR_3090, FP8_ON_3090])
def test_two_and_four_3090(case: Case) -> None:
    """To one in a hundred of what was logged."""
    logged = [tokens for row in ROWS.values() for other, tokens in row if other == case]
    architecture, card, gpus, args = case
    assert logged
    for tokens in logged:
        assert memory(architecture, card, gpus, **args).kv_tokens == pytest.approx(tokens, rel=0.01)


@pytest.mark.parametrize(
    ("case", "logged", "error"),
    [(case, logged, 0.025) for case, logged in SIX] + [(case, logged, 0.05) for case, logged in MIXTURE],
)
def test_another_pair_of_2080_ti(case: Case, logged: int, error: float) -> None:
    architecture, card, gpus, args = case
    found = memory(architecture, card, gpus, **args)
    assert found.kv_tokens == pytest.approx(logged, rel=error)
    assert found.fits


@pytest.mark.parametrize("name", RUNNING)
def test_recipes_that_run_fit(name: str) -> None:
    architecture, card, gpus, args = RUNNING[name]
    found = memory(architecture, card, gpus, **args)
    assert found.fits
    assert found.longest_len >= found.max_model_len


@pytest.mark.parametrize("name", DRAFTING)
def test_recipes_with_a_draft_model_fit_beside_it(name: str) -> None:
    """What one request of the full length leaves of the pool is more than the draft's weights."""
    (architecture, card, gpus, args), draft_mib = DRAFTING[name]
    found = memory(architecture, card, gpus, **args)
    assert found.fits
    assert found.kv_mib - found.kv_mib / found.concurrency > draft_mib


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_that_was_stated_holds_the_length_that_was_stated(name: str) -> None:
    (architecture, card, gpus, args), pool_mib = POOLS[name]
    found = memory(architecture, card, gpus, **args, kv_cache_memory_bytes=pool_mib << 20)
    assert found.longest_len == pytest.approx(args["max_model_len"], rel=0.01)


def test_every_recipe_that_states_a_figure_is_here_and_in_the_documentation() -> None:
    """The boxes and the numbers 1 to 21; those with several readings have a name that begins with it."""
    here = {name.split()[0] for name in [*RUNNING, *DRAFTING, *POOLS]}
    assert here == {"A1", "A2", "B", "C", *(str(number) for number in range(1, 22))}
    page = (Path(__file__).parents[2] / "docs" / "reference" / "memory.md").read_text(encoding="utf-8")
    table = page.split("### Recipes that run", 1)[1].split("## lmdeploy", 1)[0]
    rows = re.findall(r"^\| \**([A-C0-9]+)\b", table, re.MULTILINE)
    assert here <= set(rows)


def test_a_122b_on_four_v100() -> None:
    """redlinedtm: 520,564 tokens at 8192, which are 699 whole blocks without prefix caching; its engine does not count
    graphs in the budget."""
    architecture, card, gpus, args = RUNNING["15"]
    args = args | {"enable_prefix_caching": False}
    assert memory(architecture, card, gpus, **args).kv_tokens == pytest.approx(520_564, rel=0.16)
    assert memory(architecture, card, gpus, **args, enforce_eager=True).kv_tokens == pytest.approx(520_564, rel=0.035)
    assert not memory(architecture, V100_16, gpus, **args).fits


def test_box_c_uses_what_was_seen() -> None:
    """About 22.7 GB of 24 on each card, read as GiB."""
    architecture, card, gpus, args = RUNNING["C"]
    found = memory(architecture, card, gpus, **args)
    assert found.budget_mib + found.context_mib + 24576 - found.usable_mib == pytest.approx(22.7 * 1024, rel=0.035)


def test_a2_has_room_for_its_streams_at_full_length() -> None:
    assert memory(AWQ_35B, RTX_2080_TI, **A2).concurrency > 5


@pytest.mark.parametrize(
    ("architecture", "card", "gpus", "args"),
    [
        pytest.param(AWQ_27B, RTX_3090, 1, BOX_C, id="one of two 27B on two 3090"),
        pytest.param(AWQ_27B, RTX_3090, 2, BOX_C | {"gpu_memory_utilization": 0.47}, id="two 27B across two 3090"),
        pytest.param(AWQ_27B, RTX_2080_TI, 1, A1, id="27B on one 2080 Ti"),
        pytest.param(AWQ_27B, V100_16, 2, TEXT | {"max_model_len": 262_144, "max_num_seqs": 4}, id="18 with 16 GB"),
        pytest.param(FP8_27B, RTX_2080_TI, 2, BOX_B | {"max_model_len": 262_144}, id="B at its full length"),
        pytest.param(FP8_27B, RTX_2080_TI, 2, BOX_B | {"gpu_memory_utilization": 0.99}, id="more than is free"),
    ],
)
def test_what_cannot_be_does_not_fit(architecture: Architecture, card: Any, gpus: int, args: dict[str, Any]) -> None:
    found = memory(architecture, card, gpus, **args)
    assert not found.fits
    assert found.concurrency < 1 or not found.starts


def test_the_longest_request_is_said() -> None:
    found = memory(FP8_27B, RTX_2080_TI, **BOX_B | {"max_model_len": 262_144})
    assert not found.fits
    assert memory(FP8_27B, RTX_2080_TI, **BOX_B | {"max_model_len": found.longest_len}).fits
    assert not memory(FP8_27B, RTX_2080_TI, **BOX_B | {"max_model_len": found.longest_len + 1}).fits
