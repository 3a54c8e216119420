"""What the genuine parsers make of the ways a value can be written, and what `--changed` shows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.environments import namespaces, refusal

pytestmark = pytest.mark.large

ENGINES = ["vllm-0.33.0", "vllm-0.27.1", "vllm-0.24.0"]

GIVEN = """
compilation-config: {cudagraph_capture_sizes: [4, 8], max_cudagraph_capture_size: 8, cudagraph_mode: PIECEWISE}
device-ids: 0,1
gpu-memory-utilization: 0.92
no-async-scheduling: true
override-generation-config: '{"temperature": 0.6}'
reasoning-config: {reasoning_start_str: <think>, reasoning_end_str: </think>}
served-model-name: [a, b]
speculative-config: {method: mtp, num_speculative_tokens: 3}
"""
READ = {
    "async_scheduling": False,
    "compilation_config": {
        "cudagraph_capture_sizes": [4, 8],
        "cudagraph_mode": "PIECEWISE",
        "max_cudagraph_capture_size": 8,
    },
    "device_ids": [0, 1],
    "gpu_memory_utilization": 0.92,  # the parser's own default: given, so shown
    "override_generation_config": {"temperature": 0.6},
    "reasoning_config": {"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"},
    "served_model_name": ["a", "b"],
    "speculative_config": {"method": "mtp", "num_speculative_tokens": 3},
}


def written(folder: Path, text: str) -> Path:
    (folder / "serve.yaml").write_text(text)
    return folder / "serve.yaml"


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_file_gives_and_all_the_rest(engine: str, tmp_path: Path) -> None:
    file = written(tmp_path, GIVEN)
    assert namespaces(engine, [file, file], "--changed") == [READ, READ]
    (whole,) = namespaces(engine, [file])
    assert len(whole) > 250
    assert {name: whole[name] for name in READ if not isinstance(READ[name], dict)} == {
        name: value for name, value in READ.items() if not isinstance(value, dict)
    }
    assert whole["model_tag"] == "a-model" and whole["max_num_seqs"] is None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("device-ids: [0, 1]", "unrecognized arguments: 1"),
        ("no-disable-log-stats: true", "unrecognized arguments: --no-disable-log-stats"),
        ("gdn-prefill-backend: flashqla_legacy", "invalid choice: 'flashqla_legacy'"),
        ("reasoning-config: {default_thinking_token_budget: 4000}", "Unexpected keyword argument"),
        ("enable-auto-tool-choice: true", "--enable-auto-tool-choice requires --tool-call-parser"),
    ],
)
def test_what_the_engine_refuses(engine: str, text: str, said: str, tmp_path: Path) -> None:
    assert said in refusal(engine, written(tmp_path, text))
