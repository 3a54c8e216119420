"""Which flags and variables an engine knows: reading the tables, what they say of the flags in use, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufleet.engines import Engine, load, parse, who_knows
from gpufleet.errors import ConfigError
from gpufleet.paths import product_files

VLLM = ["vllm-0.33.0", "vllm-0.27.1", "vllm-0.24.0"]
TABLES = [*VLLM, "lmdeploy-0.18.0"]

# The flags of the reference boxes' recipes, and what vLLM's parser wants for each.
RECIPES = {
    "switch": [
        "async-scheduling",
        "disable-custom-all-reduce",
        "disable-uvicorn-access-log",
        "enable-auto-tool-choice",
        "enable-chunked-prefill",
        "enable-prefix-caching",
        "enforce-eager",
        "language-model-only",
        "skip-mm-profiling",
    ],
    "value": [
        "attention-backend",
        "block-size",
        "chat-template-content-format",
        "cpu-offload-gb",
        "dtype",
        "gpu-memory-utilization",
        "host",
        "kv-cache-dtype",
        "kv-cache-memory-bytes",
        "kv-offloading-backend",
        "kv-offloading-size",
        "max-model-len",
        "max-num-batched-tokens",
        "max-num-seqs",
        "port",
        "quantization",
        "reasoning-parser",
        "scheduling-policy",
        "tensor-parallel-size",
        "tool-call-parser",
    ],
    "commas": ["device-ids"],
    "list": ["cudagraph-capture-sizes", "served-model-name"],
    "json": [
        "additional-config",
        "compilation-config",
        "default-chat-template-kwargs",
        "override-generation-config",
        "reasoning-config",
        "speculative-config",
    ],
}

TABLE = """# a comment
max-len | value
enable-x | switch/no
quiet | switch
dtype | value | auto half |
sizes | list | | all-sizes -s
$MY_ENGINE_A
"""


def small(text: str = TABLE) -> Engine:
    return parse("my-1", text, "engines/my-1.txt")


@pytest.mark.parametrize("name", VLLM)
@pytest.mark.parametrize(("kind", "flag"), [(kind, flag) for kind, flags in RECIPES.items() for flag in flags])
def test_vllm_knows_the_flags_of_the_recipes(name: str, kind: str, flag: str) -> None:
    assert load(name).kind(flag) == kind


@pytest.mark.parametrize("name", VLLM)
def test_vllm_takes_the_values_of_the_recipes(name: str) -> None:
    engine = load(name)
    if name != "vllm-0.33.0":  # whose parser leaves it to the backends
        assert {"fp8_e4m3", "fp8_e5m2"} <= set(engine.flag("kv-cache-dtype").choices)
    assert {"half", "bfloat16"} <= set(engine.flag("dtype").choices)
    assert {"qwen3_coder", "qwen3_xml"} <= set(engine.flag("tool-call-parser").choices)
    assert "qwen3" in engine.flag("reasoning-parser").choices
    assert engine.flag("kv-offloading-backend").choices == ("lmcache", "native")
    # FlashQLA's kernel is chosen by additional-config: the flag for it does not take it
    assert engine.knows_flag("gdn-prefill-backend")
    assert "flashqla_legacy" not in engine.flag("gdn-prefill-backend").choices


@pytest.mark.parametrize("name", VLLM)
def test_vllm_knows_its_variables(name: str) -> None:
    engine = load(name)
    for known in (
        "VLLM_USE_DEEP_GEMM",
        "VLLM_USE_FLASHINFER_SAMPLER",
        "VLLM_USE_V2_MODEL_RUNNER",
        "VLLM_SERVER_DEV_MODE",
    ):
        assert engine.owns(known) and engine.knows_variable(known)
    # these come with patches, or went with an older version
    for unknown in ("VLLM_QWOPUS_MTP_BF16_DRAFT", "VLLM_SM75_SPEC_SYNC_MODE", "VLLM_TORCH_COMPILE_LEVEL"):
        assert engine.owns(unknown) and not engine.knows_variable(unknown)
    assert not engine.owns("OMP_NUM_THREADS")
    assert engine.nearest_variable("VLLM_USE_DEEPGEMM") == "VLLM_USE_DEEP_GEMM"


def test_lmdeploy_has_names_of_its_own() -> None:
    engine = load("lmdeploy-0.18.0")
    wanted = {"tp": "value", "session-len": "value", "cache-max-entry-count": "value", "quant-policy": "value",
              "backend": "value", "enable-prefix-caching": "switch", "speculative-algorithm": "value",
              "cudagraph-capture-batch-sizes": "list", "hf-overrides": "json"}  # fmt: skip
    assert {flag: engine.kind(flag) for flag in wanted} == wanted
    assert not engine.knows_flag("no-enable-prefix-caching")
    assert not any(engine.knows_flag(flag) for flag in ("max-model-len", "tensor-parallel-size", "compilation-config"))
    assert engine.owns("TM_LOG_LEVEL") and engine.knows_variable("TM_LOG_LEVEL")
    assert engine.owns("LMDEPLOY_X") and not engine.knows_variable("LMDEPLOY_X")
    assert not engine.owns("VLLM_USE_DEEP_GEMM")


def test_a_flag_of_another_engine_is_told_whose_it_is() -> None:
    assert who_knows("max-model-len") == sorted(VLLM)
    assert who_knows("session-len") == ["lmdeploy-0.18.0"]
    assert who_knows("max-num-scheduled-tokens") == ["vllm-0.27.1", "vllm-0.33.0"]
    assert who_knows("swap-space") == []


def test_switches_are_known_with_no_where_the_engine_has_that_form() -> None:
    engine = load("vllm-0.27.1")
    assert engine.knows_flag("no-async-scheduling") and engine.kind("no-async-scheduling") == "switch"
    assert engine.knows_flag("disable-log-stats") and not engine.knows_flag("no-disable-log-stats")
    assert not engine.knows_flag("no-max-model-len")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("max_model_len", "max-model-len"),
        ("--max-model-len", "max-model-len"),
        ("MAX-MODEL-LEN", "max-model-len"),
        ("max-model-length", "max-model-len"),
        ("no-async-schedulling", "no-async-scheduling"),
        ("disable-access-log", "disable-uvicorn-access-log"),
        ("enable-auto-tools", "enable-auto-tool-choice"),
        ("qqqq", None),
    ],
)
def test_an_unknown_flag_and_the_nearest_right_one(written: str, meant: str | None) -> None:
    engine = load("vllm-0.27.1")
    assert not engine.knows_flag(written)
    assert engine.nearest(written) == meant


def test_a_fork_is_a_table_and_more_names() -> None:
    base = load("vllm-0.24.0")
    fork = load("vllm-0.24.0", flags=["new-switch | switch/no", "new-value"], variables=["VLLM_1CAT_X"])
    assert fork.kind("no-new-switch") == "switch" and fork.kind("new-value") == "value"
    assert fork.knows_variable("VLLM_1CAT_X") and fork.knows_flag("max-model-len")
    assert fork.nearest("new_valu") == "new-value"
    assert not base.knows_flag("new-value") and not load("vllm-0.24.0").knows_variable("VLLM_1CAT_X")


def test_an_owner_may_have_a_table_of_his_own(tmp_path: Path) -> None:
    (tmp_path / "my-1.txt").write_text(TABLE)
    (tmp_path / "vllm-0.24.0.txt").write_text("only | value\n")
    assert load("my-1", folders=[tmp_path]).knows_flag("max-len")
    assert not load("vllm-0.24.0", folders=[tmp_path]).knows_flag("max-model-len")
    assert load("vllm-0.24.0").knows_flag("max-model-len")


def test_an_unknown_engine_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"unknown engine 'vllm-0.27.0'; did you mean 'vllm-0.27.1'\?"):
        load("vllm-0.27.0")


def test_reading_a_table() -> None:
    engine = small()
    assert set(engine.flags) == {"max-len", "enable-x", "no-enable-x", "quiet", "dtype", "sizes", "all-sizes"}
    assert engine.flag("all-sizes") is engine.flag("sizes")
    assert engine.flag("dtype").choices == ("auto", "half")
    assert engine.kind("quiet") == "switch" and not engine.flag("quiet").negatable
    assert engine.variables == {"MY_ENGINE_A"} and engine.prefixes == {"MY_"}


@pytest.mark.parametrize(
    "line", ["--x | value", "x | number", "x | value/no", "x y | value", "a | b | c | d | e", "| value"]
)
def test_a_line_that_is_no_flag_is_named(line: str) -> None:
    with pytest.raises(ConfigError, match=r"engines/my-1\.txt: "):
        small(line + "\n")
    with pytest.raises(ConfigError, match="my-1, extra flags: "):
        small().with_extra([line])


@pytest.mark.parametrize("name", TABLES)
def test_the_committed_tables_are_whole_and_in_order(name: str) -> None:
    lines = (product_files() / "engines" / f"{name}.txt").read_text().splitlines()
    flags = [line.split(" | ")[0] for line in lines if line[0] not in "#$"]
    variables = [line for line in lines if line.startswith("$")]
    assert flags == sorted(set(flags)) and variables == sorted(set(variables))
    assert len(flags) > 70 and len(variables) > 70
    assert load(name).flags.keys() >= set(flags)
