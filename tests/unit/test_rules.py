"""Rules as a whole: codes and names, silence, levels; and that boxes in order are let through."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpufleet import catalogue, paths, scenario
from gpufleet.errors import ConfigError
from gpufleet.layers import Layer
from gpufleet.models import Model
from gpufleet.plan import Box, BoxPlan, plan_box
from gpufleet.rules import Finding, check, silenced, silenced_by
from gpufleet.rules.base import LEVELS, RULES, rule
from tests.unit import (
    test_crossing,
    test_replacing,
    test_rules_driver,
    test_rules_engine,
    test_rules_flags,
    test_rules_groups,
    test_rules_host,
    test_rules_memory,
    test_rules_models_home,
    test_rules_offloading,
    test_rules_stack,
    test_rules_units,
)
from tests.unit.findings import Case, cards, engine, identify, served
from tests.unit.fleets import cpu_facts, gpu_facts, plan, product_stacks
from tests.unit.topologies import SCENARIOS

CASES: list[Case] = [
    case
    for module in (
        test_crossing,
        test_replacing,
        test_rules_driver,
        test_rules_engine,
        test_rules_flags,
        test_rules_groups,
        test_rules_host,
        test_rules_memory,
        test_rules_models_home,
        test_rules_offloading,
        test_rules_stack,
        test_rules_units,
    )
    for case in module.CASES
]
TAKEN = {"8000": {"pid": 42, "command": "python3", "unit": "my-llm.service"}}


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == set(RULES)


def test_every_rule_has_a_case_of_its_own_level() -> None:
    seen = {(case.rule, case.level) for case in CASES}
    assert [code for code, item in RULES.items() if (code, item.level) not in seen] == []


@pytest.mark.parametrize("item", RULES.values(), ids=lambda item: item.code)
def test_a_rule_says_all_of_itself(item: Any) -> None:
    assert re.fullmatch(r"GF[1-6]\d\d", item.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+|xid|overcommit", item.name)
    assert item.level in LEVELS
    assert len(item.cause) > 40 and item.cause.endswith((".", ".)"))
    assert item.remedy.endswith(".") and item.source and not item.source.endswith(".")


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_a_finding_is_silenced_by_its_code_and_not_lost(case: Case) -> None:
    case.plan.settings.silence.append(case.rule)
    try:
        assert case.rule not in [finding.code for finding in check(case.plan)]
        assert {finding.code for finding in silenced(case.plan)} == {case.rule}
    finally:
        case.plan.settings.silence.remove(case.rule)


def test_a_finding_is_silenced_by_its_name() -> None:
    facts = cpu_facts(ports=TAKEN)
    assert [finding.name for finding in check(plan(facts))] == ["port-taken"]
    quiet = plan(facts, {"silence": ["port-taken"]})
    assert check(quiet) == []
    assert [(finding.code, finding.name) for finding in silenced(quiet)] == [("GF604", "port-taken")]


def test_what_is_silenced_is_known_by_its_layer() -> None:
    layers = {"cpu": [Layer("group_data/cpu.py", {"silence": ["GF604"]})]}
    quiet = plan(cpu_facts(ports=TAKEN), layers=layers)
    assert check(quiet) == []
    assert silenced_by(quiet) == "group_data/cpu.py"
    assert silenced(plan(gpu_facts() | {"ports": TAKEN}, layers=layers)) == []


def test_nothing_is_silenced_that_is_not_found() -> None:
    assert silenced(plan(cpu_facts(), {"silence": ["GF604"]})) == []


@pytest.mark.parametrize(
    ("word", "says"),
    [("port-take", "did you mean 'port-taken'"), ("GF6040", "did you mean 'GF604'"), ("xyz", "docs/rules.md")],
)
@pytest.mark.parametrize("ask", [check, silenced])
def test_silencing_an_unknown_rule_names_the_nearest(word: str, says: str, ask: Any) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        ask(plan(cpu_facts(), {"silence": [word]}))
    assert "inventory/x.py" in str(error.value)


def test_errors_come_first() -> None:
    facts = cpu_facts(ports=TAKEN, errors=[{"source": "cpu", "message": "timed out"}])
    levels = [finding.level for finding in check(plan(facts))]
    assert levels == ["error", "warning"]


@pytest.mark.parametrize(("code", "name"), [("GF101", "another-name"), ("GF999", "volta-driver")])
def test_a_code_and_a_name_are_given_once(code: str, name: str) -> None:
    with pytest.raises(ValueError, match="two rules are called"):
        rule(code, name, level="info", source="", remedy="")(lambda plan: iter(()))
    assert code not in RULES or RULES[code].name == "volta-driver"


def test_a_finding_without_a_name_can_still_be_made() -> None:
    assert Finding("GF109", "error", "message", "remedy").name == ""


@pytest.mark.parametrize("facts", [cpu_facts(), gpu_facts(), gpu_facts((8, 6), 4, "PHB"), gpu_facts((7, 0))])
def test_a_box_in_order_has_no_finding(facts: dict[str, Any]) -> None:
    assert check(plan(facts)) == []


def test_a_box_in_order_with_everything_known_has_no_finding() -> None:
    facts = cards(
        of_each={
            "memory_used_mib": 1,
            "pcie": {"gen": 1, "gen_max": 3, "width": 16, "width_max": 16},
        },
        driver={
            "version": "580.159.03",
            "cuda": "13.0",
            "module": "580.159.03",
            "flavour": "closed",
            "module_on_disk": "580.159.03",
        },
        p2p_read={"0-1": "OK"},
        p2p_write={"0-1": "OK"},
        nouveau=False,
        xid=[],
        kernel_log=True,
        compilers={"gcc": "12.2.0", "g++": "12.2.0"},
        cpu={"cores": 8, "threads": 16, "governor": "performance", "numa_nodes": 1},
        memory={"total_mib": 64000, "available_mib": 60000, "swap_mib": 0},
        shm_mib=32000,
        shm_free_mib=32000,
        iommu={"enabled": True, "passthrough": True, "acs": []},
        secure_boot=False,
        hostname_resolves=True,
        clock={"synchronized": True, "now": "2026-01-01T00:00:00Z"},
        holds=["nvidia-driver-580"],
        nvidia_packages={"nvidia-driver-580": {"version": "580.159.03-1", "origin": "N", "candidate": "580.173.02-1"}},
        nvidia_installer=False,
        cuda_compat=[],
        unattended_upgrades={"enabled": True, "blacklist": ["nvidia", "libnvidia"]},
        display_manager=None,
        overcommit_memory=0,
        virtualization=None,
    )
    found = served(facts, engine("sm75"), {"disable-custom-all-reduce": True, "max-num-seqs": 1})
    assert check(found) == []


def test_a_box_that_tells_nothing_has_no_finding() -> None:
    """Facts of which every source failed but the cards; what is not known is no finding."""
    everything = served(cards(), engine("sm75"), {"disable-custom-all-reduce": True})
    bare = {"gpus": everything.facts["gpus"], "links": everything.facts["links"]}
    found = served(bare, engine("sm75"), {"disable-custom-all-reduce": True})
    assert check(found) == []
    for gpu in bare["gpus"]:
        gpu.update(dict.fromkeys(("processes", "pcie", "power", "persistence", "ecc", "mig", "display_active")))
    nothing = dict.fromkeys(
        (
            "os", "python", "cpu", "memory", "disks", "shm_mib", "shm_free_mib", "virtualization", "driver", "p2p_read",
            "p2p_write", "packages", "toolkits", "ports", "instances", "runtimes", "models", "errors", "xid", "iommu",
            "compilers", "secure_boot", "hostname_resolves", "clock", "holds", "nvidia_packages", "cuda_compat",
            "unattended_upgrades", "display_manager", "overcommit_memory", "nouveau", "nvidia_installer",
        )
    )  # fmt: skip
    assert check(served({**bare, **nothing}, engine("sm75"), {"disable-custom-all-reduce": True})) == []


def of_scenario(name: str, model: str, **settings: Any) -> BoxPlan:
    """The plan of a scenario's box with the product's own catalogues."""
    facts = scenario.load(SCENARIOS / f"{name}.json")
    models = catalogue.load(Model, "model", paths.model_folders(paths.product_files().parent))
    data = {"serve": [model], **settings}
    return plan_box(Box(name, data), facts, {}, product_stacks(), models)


def errors(found: BoxPlan) -> list[Finding]:
    return [finding for finding in check(found) if finding.level == "error"]


@pytest.mark.parametrize("model", ["qwen3.8-27b-awq", "ornith-1.5-35b-awq", "qwen3.8-27b-awq-mtp"])
@pytest.mark.parametrize("name", sorted(path.stem for path in SCENARIOS.glob("*.json")))
def test_the_products_recipes_on_the_labs_boxes_are_let_through(name: str, model: str) -> None:
    found = errors(of_scenario(name, model))
    # 22 GB hold no 27 B: the one refusal that is right.
    assert {finding.name for finding in found} == ({"model-does-not-fit"} if name == "single-2080ti" else set())


ASKED: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("quad-v100-mesh", "qwen3.8-27b-awq", {"host": {"toolkit": "13-0"}}, "GF201", "error"),
    ("quad-v100-mesh", "qwen3.8-27b-awq", {"stack": "vllm-0.27.1"}, "GF221", "error"),
    ("quad-v100-mesh", "qwen3.8-27b-awq", {"serve_args": {"kv-cache-dtype": "fp8_e4m3"}}, "GF541", "error"),
    ("dual-2080ti-nv2", "qwen3.8-27b-awq", {"stack": "vllm-0.27.1"}, "GF540", "error"),
    ("quad-3090-two-pairs", "qwen3.8-27b-awq", {"tensor_parallel_size": 4}, "GF314", "warning"),
    (
        "dual-3090-nv4",
        "qwen3.8-27b-awq",
        {"streams": 3, "serve_args": {"compilation-config": {"cudagraph_capture_sizes": [1, 2, 4]}}},
        "GF531",
        "warning",
    ),
    ("dual-3090-nv4", "qwen3.8-27b-awq", {"instances": 2, "tensor_parallel_size": 1}, "GF401", "error"),
    ("dual-3090-nv4", "qwen3.8-27b-awq", {"serve_args": {"disable-custom-all-reduce": False}}, "GF305", "warning"),
    ("dual-3090-nv4", "qwen3.8-27b-awq-mtp", {"serve_args": {"disable-custom-all-reduce": False}}, "GF308", "error"),
    ("dual-2080ti-nv2", "qwen3.8-27b-awq", {"serve_env": {"VLLM_USE_V2_MODEL_RUNNER": "1"}}, "GF516", "warning"),
    ("dual-2080ti-nv2", "qwen3.8-27b-awq", {}, "GF516", "info"),
]


@pytest.mark.parametrize(("name", "model", "settings", "code", "level"), ASKED, ids=lambda value: str(value)[:30])
def test_known_mistakes_on_the_labs_boxes(
    name: str, model: str, settings: dict[str, Any], code: str, level: str
) -> None:
    found = [finding for finding in check(of_scenario(name, model, **settings)) if finding.code == code]
    assert {finding.level for finding in found} == {level}
