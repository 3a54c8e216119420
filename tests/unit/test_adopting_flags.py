"""Flags read from a command line as the engine's own parser reads them, and compared with a plan's."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet import engines
from gpufleet.adopting_flags import SHORT, Written, change, leaves, read, same
from gpufleet.adopting_renamed import GONE, RENAMED, renewed
from gpufleet.paths import product_files
from gpufleet.provenance import Values
from gpufleet.spelling import words as spelled
from hostkit.adoptable_secrets import HIDDEN

TABLE = engines.load("vllm-0.27.1")


def flags(*words: str, page: str | None = None) -> dict[str, Any]:
    return read(["/m", *words], TABLE, page).args


@pytest.mark.parametrize(
    ("words", "args"),
    [
        (["--max-model-len", "4096"], {"max-model-len": 4096}),
        (["--max_model_len=4096"], {"max-model-len": 4096}),
        (["--max-model-len", "100k"], {"max-model-len": 100_000}),
        (["--max-model-len", "100K"], {"max-model-len": 102_400}),
        (["--max-model-len", "25.6k"], {"max-model-len": 25_600}),
        (["--gpu-memory-utilization", "0.92"], {"gpu-memory-utilization": 0.92}),
        (["--enable-prefix-caching"], {"enable-prefix-caching": True}),
        (["--no-enable-prefix-caching"], {"enable-prefix-caching": False}),
        (["--disable-log-stats"], {"disable-log-stats": True}),
        (["-tp", "2"], {"tensor-parallel-size": 2}),
        (["-tp=2"], {"tensor-parallel-size": 2}),
        (["-q", "fp8"], {"quantization": "fp8"}),
        (["--device-ids", "0,1"], {"device-ids": "0,1"}),
        (["--served-model-name", "a", "b"], {"served-model-name": ["a", "b"]}),
        (["--served-model-name", "a", "--port", "1"], {"served-model-name": "a", "port": 1}),
        (["--speculative-config", '{"method":"mtp"}'], {"speculative-config": {"method": "mtp"}}),
        (
            ["--speculative-config.method", "mtp", "--speculative-config.num_speculative_tokens=3"],
            {"speculative-config": {"method": "mtp", "num_speculative_tokens": 3}},
        ),
        (["-cc.mode", "0"], {"compilation-config": {"mode": 0}}),
        (["--cudagraph-capture-sizes", "4", "8"], {"compilation-config": {"cudagraph_capture_sizes": [4, 8]}}),
        (["--cudagraph-capture-sizes", "4"], {"compilation-config": {"cudagraph_capture_sizes": [4]}}),
        (
            ["--gdn-prefill-backend", "flashqla_legacy"],
            {"additional-config": {"gdn_prefill_backend": "flashqla_legacy"}},
        ),
        (["--gdn-prefill-backend", "triton"], {"gdn-prefill-backend": "triton"}),
        (["--of-a-patch"], {"of-a-patch": True}),
        (["--of-a-patch", "x"], {"of-a-patch": "x"}),
        (["--seed", "-1"], {"seed": -1}),
        (["--served-model-name", "007"], {"served-model-name": "007"}),
    ],
)
def test_words_become_flags(words: list[str], args: dict[str, Any]) -> None:
    assert flags(*words) == args


def test_a_name_that_turns_a_switch_off() -> None:
    newest = engines.load("vllm-0.33.0")
    assert read(["/m", "--disable-log-requests"], newest).args == {"enable-log-requests": False}
    assert read(["/m"], newest, "disable-log-requests: true").args == {"enable-log-requests": False}


def test_the_model_stands_anywhere() -> None:
    for words in (["/m", "--port", "1"], ["--port", "1", "/m"], ["--enable-prefix-caching", "/m"], ["--model", "/m"]):
        assert read(words, TABLE).model == "/m"


def test_a_secret_is_named_and_has_no_value() -> None:
    found = read(["/m", "--api-key", HIDDEN, "--additional-config", json.dumps({"token": HIDDEN})], TABLE)
    assert found == Written("/m", {}, ["api-key", "additional-config"], [])


def test_a_file_of_flags_is_weaker_than_the_words() -> None:
    page = "model: /m\nmax_model_len: 5\nport: 1\nenable-prefix-caching: true\nasync-scheduling: false\nno-x: true\n"
    found = read(["--port", "2"], TABLE, page)
    assert found.model == "/m"
    assert found.args == {"max-model-len": 5, "port": 2, "enable-prefix-caching": True, "no-x": True}


@pytest.mark.parametrize("page", ["", "- a\n", "a: [", "x"])
def test_a_file_that_is_none_of_flags_is_named(page: str) -> None:
    assert read(["/m"], TABLE, page).unread


def test_short_names_are_those_of_the_tables() -> None:
    for page in sorted((product_files() / "engines").glob("vllm-*.txt")):
        lines = [line.split("|") for line in page.read_text().splitlines() if line.count("|") == 3]
        short = {
            word.lstrip("-"): name.strip()
            for name, _, _, others in lines
            for word in re.findall(r"(?<!\S)-\w+", others)
        }
        assert {key: short[key] for key in SHORT if key in short} == {key: SHORT[key] for key in SHORT if key in short}
        assert {"tp", "pp", "dp", "q", "cc", "sc"} <= set(short)


def test_what_is_renamed_or_gone_is_not_known_by_the_newest() -> None:
    newest = engines.load("vllm-0.33.0")
    always = {"download-dir", "revision", "code-revision", "tokenizer-revision", "config"}
    always |= {"disable-log-requests"}  # which came back in 0.33.0 as another name
    for flag in {*GONE, *RENAMED} - always:
        assert not newest.knows_flag(flag), flag
    for flag, _, _ in RENAMED.values():
        assert newest.knows_flag(flag)
    assert renewed({"port": 1, "odd": 2}, newest) == ({"port": 1}, {"odd": ("", "")})


VALUES = st.one_of(
    st.booleans(), st.integers(-9, 9), st.text("abc", max_size=3), st.lists(st.integers(0, 9), max_size=3)
)
MAPPINGS = st.dictionaries(st.sampled_from("abcde"), VALUES, max_size=4)


@given(MAPPINGS, MAPPINGS)
def test_a_change_of_a_mapping_makes_the_one_the_other(old: dict[str, Any], planned: dict[str, Any]) -> None:
    values = Values()
    values.lay("page", {"x": planned})
    if not same(old, planned):
        values.lay("entry", {"x": change(old, planned)})
    assert same(values.values["x"], old)


SWITCHES = sorted(
    name for name, flag in TABLE.flags.items() if flag.kind == "switch" and flag.negatable and name == flag.name
)
NUMBERS = ["max-model-len", "max-num-seqs", "max-num-batched-tokens", "seed", "block-size", "cpu-offload-gb"]


@given(
    st.dictionaries(st.sampled_from(SWITCHES), st.booleans(), max_size=6),
    st.dictionaries(st.sampled_from(NUMBERS), st.integers(0, 10**6), max_size=4),
    MAPPINGS,
)
def test_what_is_spelled_is_read_again(
    switches: dict[str, bool], numbers: dict[str, int], config: dict[str, Any]
) -> None:
    args = {**switches, **numbers, **({"additional-config": config} if config else {})}
    assert read(spelled(args, TABLE), TABLE).args == args


@given(st.dictionaries(st.sampled_from("abc"), st.one_of(VALUES, MAPPINGS), max_size=3))
def test_leaves_hold_every_value(args: dict[str, Any]) -> None:
    values = Values()
    for dotted, value in leaves(args).items():
        branch: dict[str, Any] = {}
        *parents, last = dotted.split(".")
        inner = branch
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
        values.lay("leaf", branch)
    assert values.values == args


@given(
    st.lists(
        st.sampled_from(["--port", "1", "-tp", "--", "-", "--x.y", "{", "--no-x", "/m", "--additional-config", "[1"])
    )
)
def test_any_words_are_survived(words: list[str]) -> None:
    found = read(words, TABLE)
    assert isinstance(found.args, dict)
