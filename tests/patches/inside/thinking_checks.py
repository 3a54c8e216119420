"""0006: the thinking budget of requests that name none."""

import os
from types import SimpleNamespace
from typing import Any
from unittest import mock

from engine import log_of, refusal
from vllm.config import VllmConfig
from vllm.config.reasoning import ReasoningConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine import input_processor
from vllm.v1.engine.input_processor import InputProcessor


def reasoning(budget: int | None, enabled: bool = True) -> ReasoningConfig:
    config = ReasoningConfig(reasoning_parser="qwen3", default_thinking_token_budget=budget)
    config._enabled = enabled  # as initialize_token_ids leaves it when it has found the tokens
    return config


def processor(config: ReasoningConfig | None, v2: bool = False) -> InputProcessor:
    """The genuine one, of a text model that is not there."""
    model = mock.MagicMock(max_model_len=1000, runner_type="generate", is_encoder_decoder=False)
    model.get_vocab_size.return_value = 100
    model.try_get_generation_config.return_value = {}
    renderer = mock.MagicMock(tokenizer=None)
    renderer.get_eos_token_id.return_value = 2
    vllm_config: Any = mock.MagicMock(model_config=model, lora_config=None, reasoning_config=config)
    vllm_config.parallel_config = SimpleNamespace(
        data_parallel_size=1, data_parallel_size_local=1, local_engines_only=False
    )
    # The genuine answer to which runner serves, as the variable asks for.
    with mock.patch.dict(os.environ, {"VLLM_USE_V2_MODEL_RUNNER": str(int(v2))}):
        vllm_config.use_v2_model_runner = VllmConfig.use_v2_model_runner.fget(object())
    registry = mock.MagicMock()
    registry.supports_multimodal_inputs.return_value = False
    return InputProcessor(vllm_config, renderer, mm_registry=registry)


def budget_of(its: InputProcessor, asked: int | None) -> int | None:
    """The budget that the engine gets for a request that asks for one, or for none."""
    params = SamplingParams(thinking_token_budget=asked)
    prompt: Any = {"type": "token", "prompt_token_ids": [1, 2, 3]}
    with mock.patch.object(SamplingParams, "verify"):
        request = its.process_inputs("a", prompt, params, ("generate",))
    assert params.thinking_token_budget == (None if asked == -1 else asked), "the caller's own is left alone"
    assert request.sampling_params is not None
    return request.sampling_params.thinking_token_budget


def check_the_command_line_takes_it() -> None:
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())

    def read(text: str) -> int | None:
        return parser.parse_args(["--reasoning-config", text]).reasoning_config.default_thinking_token_budget

    assert read('{"default_thinking_token_budget": 4000}') == 4000
    assert read('{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}') is None
    for wrong in (-1, 0.5, "much"):
        assert "default_thinking_token_budget" in refusal(ReasoningConfig, default_thinking_token_budget=wrong)


def check_used_when_a_request_names_none() -> None:
    with log_of(input_processor) as lines:
        its = processor(reasoning(4000))
    assert lines == ["Requests that name no thinking_token_budget may think for 4000 tokens."]
    assert [budget_of(its, asked) for asked in (None, -1, 0, 7, 90000)] == [4000, 4000, 0, 7, 90000]
    assert budget_of(processor(reasoning(0)), None) == 0


def check_not_used_without_reasoning() -> None:
    with log_of(input_processor) as lines:
        its = processor(reasoning(4000, enabled=False))
    assert len(lines) == 1 and "default_thinking_token_budget=4000 is not used: reasoning is not enabled" in lines[0]
    assert budget_of(its, None) is None


def check_unset_changes_nothing() -> None:
    for config in (None, reasoning(None), reasoning(None, enabled=False)):
        for v2 in (False, True):
            with log_of(input_processor) as lines:
                its = processor(config, v2)
            assert (lines, budget_of(its, None)) == ([], None)
    assert budget_of(processor(reasoning(None)), 7) == 7


def check_other_requests_are_left_alone() -> None:
    prompt: Any = {"type": "token", "prompt_token_ids": [1, 2, 3]}
    pooling = PoolingParams(task="embed")
    with mock.patch.object(PoolingParams, "verify"):
        request = processor(reasoning(4000)).process_inputs("a", prompt, pooling, ("embed",))
    assert request.sampling_params is None and request.pooling_params == pooling


def check_refused_by_the_v2_runner() -> None:
    said = refusal(processor, reasoning(4000), v2=True)
    assert said.startswith("ValueError: default_thinking_token_budget is not supported by the V2 model runner."), said
    assert refusal(processor, reasoning(0, enabled=False), v2=True) == said
