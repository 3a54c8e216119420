"""How flags are written: what the engine reads is what the plan says, for every kind of value."""

from __future__ import annotations

import json

import yaml

from gpufleet.engines import parse
from gpufleet.spelling import config, words

TABLE = parse(
    "engine-1",
    "plain | switch\nboth | switch/no\norigins | json\ndevice-ids | commas\nnames | list\nseed | value\n",
    "engine-1.txt",
)


def test_a_switch_that_is_off_is_written_as_no() -> None:
    args = {"async-scheduling": False, "enforce-eager": True, "no-prefix": False, "dropped": None, "seed": 0}
    assert yaml.safe_load(config(args)) == {
        "no-async-scheduling": True, "enforce-eager": True, "prefix": True, "seed": 0,
    }  # fmt: skip


def test_mappings_go_in_as_json() -> None:
    given = {"method": "mtp", "num_speculative_tokens": 1}
    written = yaml.safe_load(config({"speculative-config": given}))
    assert json.loads(written["speculative-config"]) == given


def test_what_was_taken_away_inside_a_mapping_is_not_written() -> None:
    written = yaml.safe_load(config({"speculative-config": {"method": "mtp", "draft": None, "deep": {"x": None}}}))
    assert json.loads(written["speculative-config"]) == {"method": "mtp", "deep": {}}


def test_a_switch_without_a_no_form_is_left_out_when_it_is_off() -> None:
    assert yaml.safe_load(config({"plain": False, "both": False}, TABLE)) == {"no-both": True}


def test_lists_are_spelled_as_the_flag_wants_them() -> None:
    given = {"origins": ["*", "http://a"], "device-ids": [0, 1], "names": ["a", "b"]}
    assert yaml.safe_load(config(given, TABLE)) == {
        "origins": '["*", "http://a"]', "device-ids": "0,1", "names": ["a", "b"],
    }  # fmt: skip


def test_words_of_a_command_line() -> None:
    given = {"plain": True, "both": False, "names": ["a", "b"], "seed": 0, "origins": None}
    assert words(given, TABLE) == ["--no-both", "--names", "a", "b", "--plain", "--seed", "0"]
