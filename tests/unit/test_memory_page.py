"""Every figure of the estimate that docs/reference/memory.md prints, held against the code."""

from __future__ import annotations

import re

import pytest

from gpufleet import memory as constants
from gpufleet.memory import Memory
from tests.unit.memory_logged import ROWS, SIX
from tests.unit.memory_recipes import BOX_B, DRAFTING, POOLS, RTX_2080_TI, RUNNING, Case, memory
from tests.unit.test_docs_reference import REFERENCES, rows, section

PAGE = REFERENCES / "memory.md"
BY_LOGS = {row[0]: row[1:] for row in rows(section(PAGE, "How far off it was"))}
RECIPES = {row[0]: row[1:] for row in rows(section(PAGE, "Recipes that run").split("\n\nAnd what", 1)[0])}


def of(case: Case, **more: object) -> Memory:
    architecture, card, gpus, args = case
    return memory(architecture, card, gpus, **args | more)


def error(estimate: float, measured: float, digits: int = 1) -> str:
    """As the page writes it: `+0.2 %`, `−1.7 %`, `0 %`."""
    text = f"{100 * (estimate / measured - 1):+.{digits}f}".replace("-", "−")
    return "0 %" if not float(text.replace("−", "-")) else f"{text} %"


def used(case: Case) -> int:
    """MiB of a card that nvidia-smi would show: the budget, what is beside it, and the driver's own."""
    found = of(case)
    return found.budget_mib + found.context_mib + found.gpu_mib - found.usable_mib


@pytest.mark.parametrize("row", ROWS)
def test_estimates_and_errors_by_logs(row: str) -> None:
    estimates = [of(case).kv_tokens for case, _ in ROWS[row]]
    measured = [logged for _, logged in ROWS[row]]
    assert BY_LOGS[row][:3] == [
        "; ".join(f"{size:,}" for size in measured),
        "; ".join(f"{size:,}" for size in dict.fromkeys(estimates)),
        "; ".join(map(error, estimates, measured)),
    ]


def spread(batch: int, digits: int) -> list[str]:
    errors = [of(case, max_num_batched_tokens=batch).kv_tokens / logged for case, logged in SIX]
    return [error(value, 1, digits).removesuffix(" %") for value in sorted(errors, key=lambda value: abs(value - 1))]


def test_the_six_profiles() -> None:
    measured, estimate, off, note = BY_LOGS["2 × 2080 Ti, FP8, six profiles"]
    tokens = [of(case).kv_tokens for case, _ in SIX]
    logged = [size for _, size in SIX]
    assert measured == f"{min(logged):,} … {max(logged):,}"
    assert estimate == f"{min(tokens):,} … {max(tokens):,}"
    assert off == f"{spread(4096, 1)[0]} … {spread(4096, 1)[-1]} %"
    small, large = spread(2048, 0), spread(8192, 0)
    assert f"with 2048 it would be {small[0]} … {small[-1]} %, with 8192 {large[0]} … {large[-1]} %" in note


def test_the_rows_that_are_no_count_of_tokens() -> None:
    box = used(RUNNING["B"])
    assert BY_LOGS["box B, used on each card"][:3] == ["21,720 MiB", f"{box:,} MiB", error(box, 21_720)]
    longest = of(RUNNING["4"]).longest_len  # the same recipe, of 131,072 tokens
    row = BY_LOGS["2 × 2080 Ti, FP8, MTP 3, FP16 KV, batch 2048"]
    assert row[:3] == ["at least 138,000 long", f"{longest:,}", error(longest, 138_000)]


def test_no_row_is_left_out() -> None:
    others = {
        "box B, used on each card",
        "2 × 2080 Ti, FP8, six profiles",
        "2 × 2080 Ti, FP8, MTP 3, FP16 KV, batch 2048",
    }
    assert set(BY_LOGS) == set(ROWS) | others


@pytest.mark.parametrize("number", RECIPES)
def test_requests_and_lengths_of_recipes(number: str) -> None:
    """As many digits as are printed are right."""
    stated, printed = RECIPES[number][1:3]
    cases = [case for name, case in RUNNING.items() if name.split()[0] == number]
    if number in DRAFTING:
        cases = [DRAFTING[number][0]]
    found = [of(case) for case in cases]
    if number in POOLS:
        case, mib = POOLS[number]
        found = [of(case, kv_cache_memory_bytes=mib << 20)]
    requests = printed.split("; ")
    assert [
        f"{one.concurrency:.{len(text.partition('.')[2])}f}" for one, text in zip(found, requests, strict=True)
    ] == (requests)
    length = re.search(r"\d+,\d+", stated)
    assert length and {int(length[0].replace(",", ""))} == {one.max_model_len for one in found}


def test_other_figures_of_recipes() -> None:
    both = [of(RUNNING[name]) for name in ("B", "B with FP16 KV")]
    tokens = "; ".join(f"{found.kv_tokens:,}" for found in both)
    assert (
        f"{tokens} tokens: 0 %. {both[0].concurrency:.3f} requests: 0 %. "
        f"21,720 MiB used: {error(used(RUNNING['B']), 21_720)}"
    ) in RECIPES["B"][3]
    card = used(RUNNING["C"])
    assert f"{card:,} MiB, {error(card, 22.7 * 1024)} if GiB are meant" in RECIPES["C"][3]
    text = (REFERENCES.parent / "recipes.md").read_text(encoding="utf-8")
    assert f"about 22.7 GB used on each card | unproven; the [estimate](reference/memory.md) has {card:,} MiB" in text
    plain, eager = (
        of(RUNNING["15"], enable_prefix_caching=False, **more).kv_tokens for more in ({}, {"enforce_eager": True})
    )
    assert f"{plain:,}, {error(plain, 520_564, 0)}; {eager:,}, {error(eager, 520_564)}," in RECIPES["15"][3]
    case, mib = POOLS["21"]
    longest = of(case, kv_cache_memory_bytes=mib << 20).longest_len
    assert f"{longest:,}, {error(longest, 262_144)}" in RECIPES["21"][3]


@pytest.mark.parametrize("number", DRAFTING)
def test_what_is_left_for_a_draft_model(number: str) -> None:
    found = of(DRAFTING[number][0])
    left = int(found.kv_mib - found.kv_mib / found.concurrency)
    assert f"fits: {left:,} MiB " in RECIPES[number][4]


def test_the_longest_of_box_b_is_said() -> None:
    longest = memory(*RUNNING["B"][:3], **BOX_B | {"max_model_len": 262_144}).longest_len
    assert f"| box B at 262,144 | does not fit; {longest:,} do |" in section(PAGE, "Recipes that run")


def test_peers_are_what_box_b_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says which values give the blocks that were counted there, and which is taken."""
    said = re.search(r"\| peers \| (\d+) MiB .*?(\d+) to (\d+) give its blocks", PAGE.read_text(encoding="utf-8"))
    assert said
    taken, least, most = map(int, said.groups())
    assert taken == constants.WORKSPACES_PEERS_MIB

    def exact(peers: int) -> bool:
        monkeypatch.setattr(constants, "WORKSPACES_PEERS_MIB", peers)
        kinds = ("fp8_e4m3", "auto")
        found = [memory(RUNNING["B"][0], RTX_2080_TI, **BOX_B | {"kv_cache_dtype": kind}).kv_tokens for kind in kinds]
        return found == [207_692, 115_714]

    assert [exact(value) for value in (least - 1, least, taken, most, most + 1)] == [False, True, True, True, False]
