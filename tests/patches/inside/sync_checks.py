"""0005: when speculative decoding waits for streams."""

import inspect
import os
from types import SimpleNamespace
from typing import Any, get_args
from unittest import mock

import torch
from engine import refusal
from vllm import envs
from vllm.config.cache import CacheDType
from vllm.v1.worker import gpu_model_runner as runner

VARIABLE = "VLLM_SM75_SPEC_SYNC_MODE"


def check_policy() -> None:
    types = get_args(CacheDType)
    waiting = {mode: {it for it in types if runner._spec_decode_waits_for_streams(mode, it)} for mode in
               ("auto", "safe", "nosync")}  # fmt: skip
    turboquant = {"turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"}
    assert waiting == {"auto": turboquant, "safe": set(types), "nosync": set()}, waiting


def check_values() -> None:
    read = {}
    for value in ("auto", "safe", "nosync"):
        with mock.patch.dict(os.environ, {VARIABLE: value}):
            envs.validate_environ(hard_fail=True)  # registered
            read[value] = envs.VLLM_SM75_SPEC_SYNC_MODE
    assert read == {"auto": "auto", "safe": "safe", "nosync": "nosync"}
    assert envs.VLLM_SM75_SPEC_SYNC_MODE == "auto", "the default"
    for wrong in ("Safe", "1", ""):
        with mock.patch.dict(os.environ, {VARIABLE: wrong}):
            assert f"Invalid value '{wrong}' for {VARIABLE}" in refusal(getattr, envs, VARIABLE)


def check_no_new_compile_cache() -> None:
    with mock.patch.dict(os.environ, {VARIABLE: "safe"}):
        safe = envs.compile_factors()
    assert safe == envs.compile_factors()


def events_of_reading_the_counts(waits: bool) -> tuple[list[Any], list[int]]:
    """What the V1 runner does, in order, when it reads how many sampled tokens of each request are valid."""
    done: list[Any] = []
    current = SimpleNamespace(wait_stream=lambda stream: done.append(("wait", stream)))
    its = SimpleNamespace(
        spec_decode_waits=waits,
        valid_sampled_token_count_copy_stream="copies",
        valid_sampled_token_count_event=SimpleNamespace(synchronize=lambda: done.append("event")),
        valid_sampled_token_count_cpu=torch.tensor([3, 1, 9]),
        input_batch=SimpleNamespace(prev_sampled_token_ids=torch.zeros(2, 1)),
    )
    its._wait_for_valid_sampled_token_count = lambda: runner.GPUModelRunner._wait_for_valid_sampled_token_count(its)
    with mock.patch.object(torch.cuda, "current_stream", lambda: current):
        return done, runner.GPUModelRunner._get_valid_sampled_token_count(its)


def check_the_counts_are_waited_for() -> None:
    assert events_of_reading_the_counts(True) == ([("wait", "copies"), "event"], [3, 1])
    assert events_of_reading_the_counts(False) == (["event"], [3, 1])


def check_places() -> None:
    """Before the counts are used on the device, and before slot mappings are computed."""
    source = inspect.getsource(runner.GPUModelRunner._prepare_inputs)
    wait, use, sync, slots = (
        source.index(text)
        for text in (
            "self._wait_for_valid_sampled_token_count()",
            "update_num_computed_tokens_for_batch_change(",
            "if self.spec_decode_waits:\n            torch.cuda.current_stream().synchronize()",
            "self.input_batch.block_table.compute_slot_mapping(",
        )
    )
    assert wait < use < sync < slots
    assert source.count("compute_slot_mapping(") == 1
