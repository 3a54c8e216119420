"""Layers: the order of strength, merging, provenance, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.errors import ConfigError
from gpufleet.layers import Layer, load_group_data, merge, order
from tests.unit.fleets import owner

values = st.dictionaries(st.sampled_from(["max-model-len", "dtype", "seed"]), st.integers(0, 9), max_size=3)


@given(st.lists(values, min_size=1, max_size=5))
def test_the_last_layer_that_sets_a_flag_wins_and_is_named(found: list[dict[str, int]]) -> None:
    merged = merge(Layer(f"layer {number}", {"serve_args": item}) for number, item in enumerate(found))
    for flag in {flag for item in found for flag in item}:
        last = max(number for number, item in enumerate(found) if flag in item)
        assert merged.settings.serve_args[flag] == found[last][flag]
        assert merged.because[f"serve_args.{flag}"] == f"layer {last}"


def test_mappings_merge_and_lists_replace() -> None:
    merged = merge(
        [
            Layer("a", {"serve_args": {"compilation-config": {"mode": 0, "x": 1}}, "serve": ["one", "two"]}),
            Layer("b", {"serve_args": {"compilation-config": {"mode": 3}}, "serve": ["three"]}),
        ]
    )
    assert merged.settings.serve_args == {"compilation-config": {"mode": 3, "x": 1}}
    assert merged.settings.serve == ["three"]
    assert merged.because["serve_args.compilation-config.x"] == "a"
    assert merged.because["serve"] == "b"


def test_traits_come_before_the_owners_groups() -> None:
    assert order(["sm75", "nvlink", "sm75_nvlink", "nv2", "gpus2"], ["kitchen", "home", "all"]) == [
        "all", "sm75", "nvlink", "sm75_nvlink", "nv2", "gpus2", "kitchen", "home",
    ]  # fmt: skip


def test_group_data_reads_settings_and_leaves_imports_and_helpers(tmp_path: Path) -> None:
    owner(
        tmp_path,
        group_data__sm75="import os\nfrom pathlib import Path\n_n = 4\ndef twice(n): return 2 * n\n"
        "serve_args = {'max_model_len': twice(_n)}\n",
    )
    layers = load_group_data([tmp_path / "group_data"], [], tmp_path)
    assert layers["sm75"] == [Layer("group_data/sm75.py", {"serve_args": {"max-model-len": 8}})]


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("sm75", "STREAMS = 3", ["group_data/sm75.py", "unknown key 'STREAMS'"]),
        ("sm75", "serve_arg = {}", ["group_data/sm75.py", "'serve_arg'", "did you mean 'serve_args'?"]),
        ("sm75", "host = {'toolkitt': '13-0'}", ["group_data/sm75.py", "'host.toolkitt'", "did you mean 'toolkit'?"]),
        ("sm75", "mirrors = {'pypi': 'ftp://x'}", ["group_data/sm75.py", "mirrors.pypi"]),
        ("sm75", "1 / 0", ["group_data/sm75.py", "ZeroDivisionError"]),
        ("sm75", "serve_args = {", ["group_data/sm75.py", "SyntaxError"]),
        ("nvlnk", "stack = 'x'", ["group_data/nvlnk.py", "neither a trait nor a group", "did you mean 'nvlink'?"]),
        ("kitchn", "stack = 'x'", ["group_data/kitchn.py", "did you mean 'kitchen'?"]),
        ("sm86-nvlink", "stack = 'x'", ["neither a trait nor a group", "did you mean 'sm86_nvlink'?"]),
        ("SM75", "stack = 'x'", ["did you mean 'sm75'?"]),
        ("attic-1", "stack = 'x'", ["'attic-1' is a box", "settings go into its data in the inventory"]),
        ("all", "serve_env = {'A': 'x\\ny'}", ["group_data/all.py", "one line"]),
    ],
)
def test_what_is_wrong_is_named_with_file_and_nearest_name(
    tmp_path: Path, file: str, text: str, says: list[str]
) -> None:
    owner(tmp_path, **{f"group_data__{file}": text})
    with pytest.raises(ConfigError) as caught:
        load_group_data([tmp_path / "group_data"], ["kitchen"], tmp_path, ["attic-1"])
    for word in says:
        assert word in str(caught.value)
