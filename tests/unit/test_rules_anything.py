"""Rules on anything: no rule stumbles over what an owner may write, or over what a box does not tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet import catalogue, paths
from gpufleet.facts import Facts
from gpufleet.models import Model
from gpufleet.plan import Box, plan_box
from gpufleet.rules import check
from tests.unit.findings import cards, engine, served, shaped
from tests.unit.fleets import product_stacks

FLAGS = """
additional-config compilation-config reasoning-config speculative-config kv-cache-dtype quantization dtype max-model-len
max-num-seqs gpu-memory-utilization kv-offloading-size cpu-offload-gb kv-cache-memory-bytes device-ids served-model-name
enable-auto-tool-choice tool-call-parser enforce-eager disable-custom-all-reduce no-disable-custom-all-reduce
enable-prefix-caching no-enable-chunked-prefill hf-overrides port tensor-parallel-size config
""".split()  # noqa: SIM905 - as words they can be read
VARIABLES = """
CC CXX CUDAHOSTCXX CUDA_HOME PATH PYTHONPATH LD_LIBRARY_PATH TORCH_CUDA_ARCH_LIST MAX_JOBS VLLM_USE_V2_MODEL_RUNNER
VLLM_SM75_SPEC_SYNC_MODE PYTORCH_CUDA_ALLOC_CONF TRITON_CACHE_DIR
""".split()  # noqa: SIM905 - as words they can be read
KEYS = """
os python cpu memory disks shm_mib shm_free_mib virtualization driver p2p_read p2p_write packages toolkits ports
instances runtimes models errors xid iommu compilers secure_boot hostname_resolves clock holds nvidia_packages
cuda_compat unattended_upgrades display_manager overcommit_memory nouveau nvidia_installer models_home places
""".split()  # noqa: SIM905 - as words they can be read
OF_A_CARD = ["name", "processes", "pcie", "power", "persistence", "ecc", "mig", "display_active"]
words = st.sampled_from(
    ["", "auto", "fp8", "fp8_e5m2", "awq", "bfloat16", "mtp", "0.9", "-1", "1,x", '{"a": 1}', "[1", "é"]
)
plain = st.one_of(st.none(), st.booleans(), st.integers(-5, 10**13), st.floats(-2, 200), words)
inside = st.sampled_from(
    ["method", "num_speculative_tokens", "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size",
     "gdn_prefill_backend", "default_thinking_token_budget", "draft_tensor_parallel_size"]
)  # fmt: skip
values = st.one_of(
    plain, st.lists(plain, max_size=3), st.dictionaries(inside, st.one_of(plain, st.lists(plain, max_size=3)))
)
BOX = {"capability": st.sampled_from([(7, 0), (7, 5), (8, 6), (12, 0)]), "count": st.integers(1, 4)}
ENGINE = engine("sm70", "sm75", "sm86", "sm120", flags="vllm-0.27.1", provides=["fp8-kv-sm75", "flashqla"])


@settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries(BOX),
    st.dictionaries(st.sampled_from(FLAGS), values, max_size=6),
    st.dictionaries(st.sampled_from(VARIABLES), words, max_size=4),
)
def test_any_flag_and_variable(box: dict[str, Any], args: dict[str, Any], env: dict[str, str]) -> None:
    found = check(served(cards(**box), ENGINE, args, {"serve_env": env}, **shaped()))
    assert all(finding.message and finding.remedy for finding in found)


@settings(max_examples=100, deadline=None)
@given(st.fixed_dictionaries(BOX), st.sets(st.sampled_from(KEYS)), st.sets(st.sampled_from(OF_A_CARD)), st.booleans())
def test_any_fact_may_be_unknown(box: dict[str, Any], keys: set[str], of_a_card: set[str], absent: bool) -> None:
    facts = cards(**box)
    if absent:
        facts = {key: value for key, value in facts.items() if key not in keys}
    else:
        facts.update(dict.fromkeys(keys))
    for gpu in facts["gpus"]:
        gpu.update(dict.fromkeys(of_a_card))
    found = check(served(facts, ENGINE, {"disable-custom-all-reduce": True}, **shaped()))
    assert all(finding.message and finding.remedy for finding in found)


class Noting(dict[str, Any]):
    """Facts that remember what they were asked for."""

    asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def test_rules_read_only_what_the_probe_tells() -> None:
    facts = Noting(cards(errors=[{"source": "x", "message": "y"}]))
    check(served(facts, ENGINE, {}, {"host": {"install_packages": False}}, **shaped()))
    known = {field.alias or name for name, field in Facts.model_fields.items()}
    assert len(facts.asked) > 25
    assert facts.asked - known == set()
    assert set(KEYS) - known == set()


KEPT = sorted((Path(__file__).parents[1] / "data" / "facts").glob("*.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_boxes_really_answered_has_no_error(path: Path) -> None:
    facts = json.loads(path.read_text(encoding="utf-8"))
    models = catalogue.load(Model, "model", paths.model_folders())
    found = check(plan_box(Box("box", {"serve": ["qwen3.8-27b-awq"]}), facts, {}, product_stacks(), models))
    assert [finding for finding in found if finding.level == "error"] == []
