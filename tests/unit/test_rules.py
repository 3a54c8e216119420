"""Rules: each finds its problem, and says nothing of a box in order."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet.errors import ConfigError
from gpufleet.rules import check
from gpufleet.rules.base import RULES
from tests.unit.fleets import cpu_facts, gpu_facts, plan, stack

PORT = {"8000": {"pid": 42, "command": "python3", "unit": "my-llm.service"}}
OURS = {"8000": {"pid": 42, "command": "vllm", "unit": "gpufleet-tiny.service"}}
SM75 = [stack(arch=["sm75"])]
OLD_DRIVER = {"version": "570.10", "cuda": "12.8", "module": None}
NEW_DRIVER = {"version": "590.10", "cuda": "13.1", "module": None}
UBUNTU_20 = {"id": "ubuntu", "version_id": "20.04", "arch": "x86_64"}
SMALL = {"/opt/gpufleet": {"free_mib": 3000, "total_mib": 4000}}

CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("system-unsupported", cpu_facts(os=UBUNTU_20), {}, {}),
    ("system-unsupported", cpu_facts(os={**cpu_facts()["os"], "arch": "aarch64"}), {}, {}),
    ("python-unsupported", cpu_facts(python={"version": "3.12.3"}), {}, {}),
    ("packages-missing", cpu_facts(), {"host": {"install_packages": False}}, {}),
    ("disk-space", cpu_facts(disks=SMALL), {}, {"stacks": [stack(disk_mib=5000)]}),
    ("port-taken", cpu_facts(ports=PORT), {}, {}),
    ("port-taken", cpu_facts(ports=OURS), {"serve": [{"model": "tiny", "name": "b"}, "tiny"]}, {}),
    (
        "port-taken",
        cpu_facts(),
        {"serve": [{"model": "tiny", "port": 8000}, {"model": "tiny", "name": "b", "port": 8000}]},
        {},
    ),
    ("probe-incomplete", cpu_facts(errors=[{"source": "cpu", "message": "timed out"}]), {}, {}),
    ("toolkit-drops-arch", gpu_facts((7, 0)), {"host": {"toolkit": "13-0"}}, {}),
    ("stack-lacks-arch", gpu_facts((7, 0)), {}, {"stacks": SM75}),
    ("stack-lacks-arch", gpu_facts(), {"tensor_parallel_size": 4}, {"stacks": SM75}),
    ("driver-too-old", gpu_facts() | {"driver": OLD_DRIVER}, {}, {}),
    ("volta-driver", gpu_facts((7, 0)) | {"driver": NEW_DRIVER}, {}, {}),
    ("toolkit-damaged", gpu_facts(packages={"cuda-toolkit-13-0": "13.0"}), {}, {}),
    ("secret-in-settings", cpu_facts(), {"serve_env": {"HF_TOKEN": "x"}}, {}),
    ("gpus-unreadable", cpu_facts(driver=NEW_DRIVER), {}, {}),
    ("expected-hardware", gpu_facts(link="NV3"), {"expect": {"nvlink": 4}}, {}),
    ("expected-hardware", gpu_facts(count=1), {"expect": {"gpus": 2}}, {}),
    ("flag-is-ours", cpu_facts(), {"serve_args": {"port": 1}}, {}),
    ("contradicting-switch", cpu_facts(), {"serve_args": {"no-enforce-eager": True}}, {}),
    ("value-misread", cpu_facts(), {"serve_args": {"async-scheduling": "false"}}, {}),
    ("value-misread", cpu_facts(), {"serve_args": {"chat-template": "-x"}}, {}),
    ("speculative-tokens", cpu_facts(), {"serve_args": {"speculative-config": {"num_speculative_tokens": 0}}}, {}),
]


@pytest.mark.parametrize(("code", "facts", "data", "more"), CASES)
def test_a_rule_finds_its_problem_and_can_be_silenced(code: str, facts: dict, data: dict, more: dict) -> None:
    found = [finding for finding in check(plan(facts, data, **more)) if finding.code == code]
    assert found and all(finding.remedy and finding.message for finding in found)
    silenced = check(plan(facts, {**data, "silence": [code]}, **more))
    assert code not in [finding.code for finding in silenced]


def test_every_rule_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(RULES)


@pytest.mark.parametrize("facts", [cpu_facts(), gpu_facts(), gpu_facts((8, 6), 4, "PHB"), gpu_facts((7, 0))])
def test_a_box_in_order_has_no_finding(facts: dict) -> None:
    assert check(plan(facts)) == []


def test_the_port_of_an_instance_of_ours_is_not_taken() -> None:
    assert check(plan(cpu_facts(ports=OURS))) == []


def test_what_is_installed_needs_no_space() -> None:
    big = stack(disk_mib=5000)
    facts = cpu_facts(disks=SMALL, runtimes={big.runtime: {"complete": True}})
    assert check(plan(facts, stacks=[big])) == []


def test_silencing_an_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'port-taken'"):
        check(plan(cpu_facts(), {"silence": ["port-take"]}))
