"""The reference boxes, from data alone: every flag and variable of their recipes, and nothing else.

The values are those of docs/recipes.md, written out by hand; what the engine's own parser makes of the files that are
rendered from them is in tests/golden.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpufleet import catalogue, paths, scenario
from gpufleet.instance import Instance
from gpufleet.models import Model
from gpufleet.plan import Box, plan_box
from tests.unit.fleets import product_stacks

TOPOLOGIES = Path(__file__).resolve().parents[2] / "lab" / "topologies"

BOX_A: dict[str, Any] = {
    "host": "0.0.0.0",
    "port": 3001,
    "served-model-name": "medium",
    "dtype": "half",
    "tensor-parallel-size": 2,
    "device-ids": "0,1",
    "kv-cache-dtype": "fp8_e4m3",
    "max-model-len": 200000,
    "max-num-seqs": 3,
    "max-num-batched-tokens": 4096,
    "enable-prefix-caching": True,
    "enable-chunked-prefill": True,
    "async-scheduling": False,
    "language-model-only": True,
    "skip-mm-profiling": True,
    "reasoning-parser": "qwen3",
    "enable-auto-tool-choice": True,
    "tool-call-parser": "qwen3_coder",
    "gpu-memory-utilization": 0.92,
    "additional-config": {"gdn_prefill_backend": "flashqla_legacy"},
    "speculative-config": {"method": "mtp", "num_speculative_tokens": 3, "draft_sample_method": "probabilistic"},
    "compilation-config": {"cudagraph_capture_sizes": [4, 8, 12], "max_cudagraph_capture_size": 12},
}
ENV_A = {
    "VLLM_USE_DEEP_GEMM": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_QWOPUS_MTP_BF16_DRAFT": "1",
    "VLLM_SM75_SPEC_SYNC_MODE": "safe",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "CUDA_HOME": "/usr/local/cuda-13.0",
    "LD_LIBRARY_PATH": "/usr/local/cuda-13.0/lib64",
    "TORCH_CUDA_ARCH_LIST": "7.5",
}
ORNITH = {
    **BOX_A,
    "max-num-seqs": 7,
    "speculative-config": {"method": "mtp", "num_speculative_tokens": 1, "draft_sample_method": "probabilistic"},
    "compilation-config": {"cudagraph_capture_sizes": [2, 4, 6, 8, 10, 12], "max_cudagraph_capture_size": 12},
}
BOX_B: dict[str, Any] = {
    "host": "0.0.0.0",
    "port": 8000,
    "served-model-name": "qwen-local",
    "dtype": "half",
    "tensor-parallel-size": 2,
    "device-ids": "0,1",
    "quantization": "fp8",
    "kv-cache-dtype": "fp8_e4m3",
    "max-model-len": 100000,
    "enable-prefix-caching": True,
    "max-num-seqs": 1,
    "max-num-batched-tokens": 4096,
    "enable-chunked-prefill": True,
    "async-scheduling": False,
    "skip-mm-profiling": True,
    "reasoning-parser": "qwen3",
    "reasoning-config": {
        "reasoning_start_str": "<think>",
        "reasoning_end_str": "</think>",
        "default_thinking_token_budget": 4000,
    },
    "default-chat-template-kwargs": {"enable_thinking": True},
    "enable-auto-tool-choice": True,
    "tool-call-parser": "qwen3_coder",
    "chat-template-content-format": "string",
    "gpu-memory-utilization": 0.92,
    "additional-config": {"gdn_prefill_backend": "flashqla_legacy"},
    "speculative-config": {"method": "mtp", "num_speculative_tokens": 3},
    "compilation-config": {
        "cudagraph_mode": "PIECEWISE",
        "cudagraph_capture_sizes": [4],
        "max_cudagraph_capture_size": 4,
    },
    "override-generation-config": {
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0,
        "presence_penalty": 0,
        "repetition_penalty": 1.06,
    },
    "cpu-offload-gb": 0,
    "disable-uvicorn-access-log": True,
}
ENV_B = {
    "VLLM_USE_DEEP_GEMM": "0",
    "OMP_NUM_THREADS": "8",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_QWOPUS_MTP_BF16_DRAFT": "1",
    "VLLM_SM75_SPEC_SYNC_MODE": "safe",
    "CUDA_HOME": "/usr/local/cuda-12.9",
    "LD_LIBRARY_PATH": "/usr/local/cuda-12.9/lib64",
    "TORCH_CUDA_ARCH_LIST": "7.5",
}
BOX_C: dict[str, Any] = {
    "host": "0.0.0.0",
    "port": 8000,
    "served-model-name": "shawnw3i",
    "dtype": "bfloat16",
    "quantization": "awq_marlin",
    "kv-cache-dtype": "fp8_e4m3",
    "tensor-parallel-size": 2,
    "max-model-len": 262144,
    "max-num-seqs": 1,
    "max-num-batched-tokens": 4096,
    "gpu-memory-utilization": 0.95,
    "enable-chunked-prefill": True,
    "block-size": 16,
    "enable-prefix-caching": True,
    "disable-custom-all-reduce": True,
    "scheduling-policy": "priority",
    "speculative-config": {"method": "qwen3_5_mtp", "num_speculative_tokens": 3},
    "compilation-config": {"cudagraph_capture_sizes": [4], "max_cudagraph_capture_size": 4},
    "reasoning-parser": "qwen3",
    "tool-call-parser": "qwen3_xml",
    "enable-auto-tool-choice": True,
    "default-chat-template-kwargs": {"enable_thinking": True, "preserve_thinking": True},
}
ENV_C = {
    "VLLM_USE_FLASHINFER_SAMPLER": "1",
    "FLASHINFER_DISABLE_VERSION_CHECK": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "CUDA_HOME": "/usr/local/cuda-13.0",
    "LD_LIBRARY_PATH": "/usr/local/cuda-13.0/lib64",
    "TORCH_CUDA_ARCH_LIST": "8.6",
}
# (topology, model, stack when it is not the default, flags, variables)
REFERENCE = {
    "A1 with a bridge": ("dual-2080ti-nv2", "qwen3.8-27b-awq", None, BOX_A, ENV_A),
    "A1 without": ("dual-2080ti-pcie", "qwen3.8-27b-awq", None, BOX_A, ENV_A),
    "A2 with a bridge": ("dual-2080ti-nv2", "ornith-1.5-35b-awq", None, ORNITH, ENV_A),
    "A2 without": ("dual-2080ti-pcie", "ornith-1.5-35b-awq", None, ORNITH, ENV_A),
    "B": ("dual-2080ti-nv2", "qwen3.6-27b-dsv4pro-fp8", "vllm-0.24.0-sm75", BOX_B, ENV_B),
    "C": ("dual-3090-nv4", "qwen3.8-27b-awq-mtp", None, BOX_C, ENV_C),
}


def reference(topology: str, model: str, stack: str | None, **settings: Any) -> Instance:
    """The one instance of a scenario's box; its processor has 8 cores, as box B's."""
    facts = scenario.load(TOPOLOGIES / f"{topology}.json") | {"cpu": {"cores": 8, "threads": 16}}
    given = {"serve": [model], **({"stack": stack} if stack else {}), **settings}
    models = catalogue.load(Model, "model", paths.model_folders())
    (instance,) = plan_box(Box("box", given), facts, {}, product_stacks(), models).instances
    return instance


@pytest.mark.parametrize("name", REFERENCE)
def test_a_reference_box_comes_out_as_its_recipe(name: str) -> None:
    topology, model, stack, args, env = REFERENCE[name]
    found = reference(topology, model, stack)
    assert found.args == args
    ours = {"PATH", "HOME", "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME"}
    ours |= {"TORCH_EXTENSIONS_DIR", "FLASHINFER_WORKSPACE_BASE"}
    ours |= {"HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"}
    cards = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(found.uuids)}
    assert {key: value for key, value in found.env.items() if key not in ours} == {**env, **cards}
    assert found.env["PATH"].split(":")[1] == f"{env['CUDA_HOME']}/bin"
    assert found.memory is not None and found.memory.fits


@pytest.mark.parametrize(
    ("tokens", "streams", "seqs", "sizes"),
    [
        (2, 6, 7, [3, 6, 9, 12, 15, 18]),  # Ornith with MTP 2 and six streams
        (3, 7, 8, [4, 8, 12, 16, 20, 24, 28]),  # with MTP 3 and seven
        (1, None, 7, [2, 4, 6, 8, 10, 12]),
    ],
)
def test_capture_sizes_follow_tokens_and_streams(tokens: int, streams: int | None, seqs: int, sizes: list[int]) -> None:
    speculative = {"serve_args": {"speculative-config": {"num_speculative_tokens": tokens}}}
    more = {"streams": streams} if streams else {}
    found = reference("dual-2080ti-nv2", "ornith-1.5-35b-awq", None, **speculative, **more)
    assert found.args["compilation-config"]["cudagraph_capture_sizes"] == sizes
    assert found.args["compilation-config"]["max_cudagraph_capture_size"] == sizes[-1]
    assert found.args["max-num-seqs"] == seqs


def test_without_mtp_it_is_served_with_the_same_flags_less_the_last_two() -> None:
    found = reference("dual-2080ti-nv2", "ornith-1.5-35b-awq", None, serve_args={"speculative-config": None})
    assert found.args.pop("speculative-config") is None
    assert found.args == {
        key: value for key, value in ORNITH.items() if key not in ("speculative-config", "compilation-config")
    }


def test_the_greedy_default_of_box_a() -> None:
    greedy = {"num_speculative_tokens": 2, "draft_sample_method": None}
    found = reference("dual-2080ti-nv2", "qwen3.8-27b-awq", None, serve_args={"speculative-config": greedy})
    assert found.args["compilation-config"]["cudagraph_capture_sizes"] == [3, 6, 9]
