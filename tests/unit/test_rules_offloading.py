"""Options of stacks: what they give an instance, its runtime, and what the rules say of a KV cache beyond the cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpufleet import catalogue, paths, render
from gpufleet.errors import ConfigError
from gpufleet.plan import BoxPlan
from gpufleet.stacks import Stack
from gpufleet.wheelhouse import lock
from gpufleet.wheelhouse.lock_target import targets
from tests.unit.findings import Case, assert_fires, cards, engine, identify, said, served, shaped
from tests.unit.fleets import model, plan

LMCACHE = {"kv-transfer-config": {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}}
OPTIONS: dict[str, Any] = {
    "native": {"title": "by vLLM", "args": {"kv-offloading-size": 6}, "not_with": ["lmcache"]},
    "lmcache": {
        "title": "by LMCache", "lock": "vllm-0.27.1-build", "args": LMCACHE,
        "env": {"LMCACHE_MAX_LOCAL_CPU_SIZE": "6"}, "hybrid": False,
    },
    "other": {"title": "another", "lock": "vllm-0.27.1"},
    "kinder": {"title": "about kinds", "args": {"max-num-seqs": 2}},
}  # fmt: skip
STACK = engine("sm75", "sm86", options=OPTIONS)
ATTENTION = {"layers": {"full_attention": 36}, "linear": None}
EXPANDABLE = {"serve_env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}


def chosen(*names: str, shape: dict[str, Any] | None = None, by: Stack = STACK, **data: Any) -> BoxPlan:
    """A box with two cards that serves with these options of the stack."""
    page = shaped(**(ATTENTION if shape is None else shape))
    return served(cards(), by, {"max-model-len": 8192}, {"options": list(names), **data}, **page)


CASES = [
    Case("GF550", "error", "48 layers with a state", chosen("lmcache", shape={})),
    Case("GF551", "error", "expandable_segments:True", chosen("native", **EXPANDABLE)),
    Case("GF551", "error", "KV offloading", chosen("lmcache", **EXPANDABLE)),
]


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_it_is_found(case: Case) -> None:
    assert_fires(case)


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("GF550", chosen("lmcache")),
        ("GF550", chosen("native", shape={})),
        ("GF550", chosen(shape={})),
        ("GF551", chosen("native")),
        ("GF551", chosen(**EXPANDABLE)),
        ("GF551", chosen("native", by=engine("sm75", name="vllm-0.23.0-x", options=OPTIONS), **EXPANDABLE)),
    ],
)
def test_what_is_in_order_is_not(rule: str, found: BoxPlan) -> None:
    assert said(found, rule) == []


def test_lmcache_takes_its_memory_for_each_card() -> None:
    env = {"LMCACHE_MAX_LOCAL_CPU_SIZE": "30"}
    memory = {"memory": {"total_mib": 48000, "available_mib": 47000, "swap_mib": 0}}
    page = shaped(**ATTENTION)
    for size, gives in (("30", True), ("20", False)):
        data = {"options": ["lmcache"], "serve_env": {**env, "LMCACHE_MAX_LOCAL_CPU_SIZE": size}}
        found = served(cards(2, **memory), STACK, {"max-model-len": 8192}, data, **page)
        assert bool(said(found, "GF405")) == gives


def test_an_option_gives_its_flags_and_variables_and_says_so() -> None:
    (instance,) = chosen("lmcache").instances
    assert instance.args["kv-transfer-config"] == LMCACHE["kv-transfer-config"]
    assert instance.env["LMCACHE_MAX_LOCAL_CPU_SIZE"] == "6"
    source = f"option lmcache of stack {STACK.name}"
    assert instance.because["env.LMCACHE_MAX_LOCAL_CPU_SIZE"] == source
    assert '"kv_connector": "LMCacheConnectorV1"' in render.config(instance.args)


def test_nothing_is_given_unless_it_is_chosen() -> None:
    (instance,) = chosen().instances
    assert "kv-transfer-config" not in instance.args and "LMCACHE_MAX_LOCAL_CPU_SIZE" not in instance.env


def test_it_is_stronger_than_the_model_and_weaker_than_the_owner() -> None:
    page = {**shaped(**ATTENTION), "args": {"max-num-seqs": 7}}
    data = {"stack": STACK.name, "options": ["kinder"]}
    (instance,) = plan(cards(), data, stacks=[STACK], models=[model(**page)]).instances
    assert instance.args["max-num-seqs"] == 2
    (instance,) = plan(
        cards(), {**data, "serve_args": {"max-num-seqs": 3}}, stacks=[STACK], models=[model(**page)]
    ).instances
    assert instance.args["max-num-seqs"] == 3


def test_packages_of_its_own_make_another_runtime_and_flags_do_not() -> None:
    names = {option: chosen(*option).instances[0].runtime.name for option in ((), ("native",), ("lmcache",))}
    assert names[()] == names[("native",)] != names[("lmcache",)]
    assert chosen("lmcache").instances[0].stack.lock_path("3.11").name == "vllm-0.27.1-build-py311.txt"


def test_two_instances_of_one_stack_may_differ() -> None:
    serve = [
        {"model": "tiny", "name": "one", "tensor_parallel_size": 1, "options": ["lmcache"]},
        {"model": "tiny", "name": "two", "tensor_parallel_size": 1},
    ]
    page = model(**shaped(**ATTENTION))
    found = plan(cards(), {"stack": STACK.name, "options": ["kinder"], "serve": serve}, stacks=[STACK], models=[page])
    one, two = found.instances
    assert (one.stack.chosen, two.stack.chosen) == (("lmcache",), ("kinder",))
    assert len(found.runtimes) == 2


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["lmcach"], r"box-1: options \(inventory/x.py\): stack .* has no option 'lmcach'; did you mean 'lmcache'\?"),
        (["lmcache", "native"], "options native and lmcache exclude each other; keep one"),
        (["lmcache", "other"], "options lmcache and other each have packages of their own; keep one"),
    ],
)
def test_a_wrong_choice_is_said(names: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chosen(*names)


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ({"lock": None, "uv": None}, "options.lmcache has a lock, but the stack has none"),
        ({"options": {"a": {"title": "a", "not_with": ["b"]}}}, "options.a.not_with names b, which is no option"),
    ],
)
def test_a_page_that_contradicts_itself_is_refused(page: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine("sm75", **{"options": OPTIONS, **page})


def test_what_comes_along_can_be_chosen_and_every_flag_of_it_is_known() -> None:
    shipped = catalogue.load(Stack, "stack", paths.stack_folders())
    for stack in shipped.values():
        for name, option in stack.options.items():
            assert stack.table is not None and all(stack.table.knows_flag(flag) for flag in option.args), name
            assert stack.with_options([name], "here").lock == (option.lock or stack.lock)
    assert [name for name, stack in sorted(shipped.items()) if "lmcache" in stack.options] == [
        "vllm-0.27.1", "vllm-0.27.1-sm75", "vllm-0.27.1-sm75-source", "vllm-0.27.1-sm75-zyyuc",
    ]  # fmt: skip


def test_the_locks_with_lmcache_have_it_and_what_the_stack_has_besides() -> None:
    shipped = catalogue.load(Stack, "stack", paths.stack_folders())
    for name in ("vllm-0.27.1", "vllm-0.27.1-sm75"):
        stack = shipped[name]
        own, more = (target for target in targets(stack) if target.whole)
        for python in stack.python:
            before, after = (lock.by_name(lock.parse(_read(it.path(python)), it.name)) for it in (own, more))
            assert after["lmcache"].version == "0.5.6" and set(before) < set(after)
            for same in ("torch", "transformers", "triton", "flashinfer-python", "nvidia-cuda-nvcc"):
                assert after[same] == before[same]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
