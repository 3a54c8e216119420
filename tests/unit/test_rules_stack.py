"""Rules about toolkit, compilers and stacks."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet.plan import BoxPlan
from gpufleet.rules import check
from gpufleet.stacks import Stack
from tests.unit.findings import Case, assert_fires, cards, engine, identify, said, served
from tests.unit.fleets import cpu_facts, plan

JIT = engine("sm75", provides=["fp8-kv-sm75", "flashqla"], cuda_toolkit="12-8")
PLAIN = engine("sm75", "sm70", "sm86", "sm120")


def torch(version: str, *archs: str, **more: Any) -> Stack:
    return engine(*archs, versions={"torch": version, **more})


def toolkit(version: str, facts: dict[str, Any], by: Stack = PLAIN) -> BoxPlan:
    return served(facts, by, None, {"host": {"toolkit": version}})


def env(by: Stack, **variables: str) -> BoxPlan:
    return served(cards(2), by, None, {"serve_env": variables})


NEW, NONE = {"host": {"toolkit": "13-0"}}, {"host": {"toolkit": "none"}}
FLASHQLA = engine("sm75", versions={"torch": "2.13.0+cu130"}, provides=["flashqla"])
AMPERE = torch("2.13.0+cu130", "sm86", flashinfer="0.6.16.post3")
OUR_HOLD = {"installed": ["cuda-nvcc-12-9"], "held": ["cuda-nvcc-12-9"], "upgrades": "current"}
INSTALLED = {"cuda-toolkit-13-0": "13.0"}
OLDEST = {"version": "440.100", "cuda": "10.2", "module": "440.100"}
OLD = {"version": "570.10", "cuda": "12.8", "module": "570.10"}
DEBIAN_13 = {**cpu_facts()["os"], "version_id": "13", "glibc": "2.41"}
GCC_15 = {"gcc": "15.2.0", "g++": "15.2.0"}
SMALL = {"memory": {"total_mib": 16000}, "cpu": {"cores": 8, "threads": 16}}

CASES = [
    Case("GF201", "error", "12-9", toolkit("13-0", cards(2, (7, 0)))),
    Case("GF201", "error", "12-9", plan(cards(1, (7, 0)), {"serve": [], "host": {"toolkit": "13-0"}})),
    Case("GF202", "error", "13-0", toolkit("12-6", cards(1, (12, 0)))),
    Case("GF203", "warning", "--reinstall", toolkit("13-0", cards(packages=INSTALLED))),
    Case("GF204", "error", "or set host.toolkit to 12-8", toolkit("13-0", cards(driver=OLD))),
    Case("GF204", "error", "driver 580", served(cards(driver=OLD), torch("2.13.0+cu130", "sm75"), None, NEW)),
    Case("GF204", "error", "install a newer driver", toolkit("11-8", cards(driver=OLDEST))),
    Case("GF205", "error", "gcc-14", served(cards(compilers=GCC_15), JIT)),
    Case("GF205", "warning", "takes 14", served(cards(compilers=GCC_15), PLAIN)),
    Case("GF205", "error", "takes 13", toolkit("12-6", cards(compilers={"g++": "14.2.0"}), JIT)),
    Case("GF206", "error", "2.41", served(cards(os=DEBIAN_13), JIT)),
    Case("GF206", "warning", "2.41", served(cards(2, (7, 0), os=DEBIAN_13), PLAIN)),
    Case("GF207", "error", "nvcc", toolkit("none", cards(), JIT)),
    Case("GF207", "error", "nvcc", served(cards(2, (8, 6)), AMPERE, {"kv-cache-dtype": "fp8"}, NONE)),
    Case("GF208", "warning", "unhold libnvjitlink-12-8", served(cards(holds=["libnvjitlink-12-8", "vim"]), PLAIN)),
    Case("GF114", "error", "cuda-13-0", served(cards(), engine("sm75", apt=["g++", "cuda-13-0", "cuda-nvcc-13-0"]))),
    Case("GF209", "error", '"gcc-14"', env(PLAIN, CC="g++-14")),
    Case("GF209", "error", "different", env(PLAIN, CC="gcc-14", CXX="g++-13")),
    Case("GF210", "warning", '"MAX_JOBS": "3"', served(cards(**SMALL), JIT)),
    Case("GF211", "warning", "cuda-12.8", env(PLAIN, CUDA_HOME="/usr/local/cuda")),
    Case("GF211", "warning", "''", env(PLAIN, CUDA_HOME="")),
    Case("GF212", "error", "7.5", env(PLAIN, TORCH_CUDA_ARCH_LIST="8.0;8.6")),
    Case("GF212", "error", "7.0;7.5", env(engine("sm75", cuda_toolkit="13-0"), TORCH_CUDA_ARCH_LIST="7.0;7.5")),
    Case("GF220", "error", "sm75", served(cards(2, (7, 0)), engine("sm75"))),
    Case("GF221", "error", "sm_70", served(cards(2, (7, 0)), torch("2.13.0+cu130", "sm70"))),
    Case("GF221", "error", "cu126", served(cards(2, (7, 0)), torch("2.11.0+cu128", "sm70"))),
    Case("GF221", "error", "Blackwell", served(cards(1, (12, 0)), torch("2.10.0+cu126", "sm120"))),
    Case("GF222", "error", "driver 580", served(cards(driver=OLD), torch("2.13.0+cu130", "sm75"))),
    Case("GF227", "warning", "13-0", toolkit("12-8", cards(), torch("2.13.0+cu130", "sm75"))),
    Case("GF227", "error", "13-0", toolkit("12-8", cards(), FLASHQLA)),
    Case("GF223", "warning", "not installed yet", served(cards(), engine("sm75", lock=None, uv=None))),
    Case("GF224", "warning", "0.6.12", served(cards(), torch("2.11.0+cu130", "sm75", flashinfer="0.6.12"))),
    Case("GF225", "error", "0.1.10", served(cards(2, (7, 0)), torch("2.10.0+cu128", "sm70", tilelang="0.1.9"))),
    Case("GF226", "error", "3.11", served(cards(python={"version": "3.12.3"}), PLAIN)),
]  # fmt: skip


def test_a_stack_that_cannot_be_installed_is_refused_when_it_is_to_be() -> None:
    found = served(cards(), engine("sm75", lock=None, uv=None))
    level = {
        deploying: [item.level for item in check(found, deploying) if item.code == "GF223"]
        for deploying in (False, True)
    }
    assert level == {False: ["warning"], True: ["error"]}


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_it_is_found(case: Case) -> None:
    assert_fires(case)


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("GF201", toolkit("13-0", cards())),
        ("GF201", toolkit("12-9", cards(2, (7, 0)))),
        ("GF202", toolkit("12-8", cards(1, (12, 0)))),
        ("GF203", toolkit("13-0", cards(packages=INSTALLED, toolkits={"13.0": "/usr/local/cuda-13.0"}))),
        ("GF203", toolkit("13-0", cards(packages=INSTALLED, errors=[{"source": "toolkits", "message": "no answer"}]))),
        ("GF204", toolkit("12-8", cards(driver=OLD))),
        ("GF205", served(cards(compilers=GCC_15), JIT, None, {"host": {"toolkit": "13-0"}})),
        ("GF205", served(cards(compilers=GCC_15), JIT, None, {"serve_env": {"CUDAHOSTCXX": "g++-14"}})),
        ("GF206", toolkit("13-0", cards(os=DEBIAN_13), JIT)),
        ("GF207", toolkit("none", cards(), PLAIN)),
        ("GF207", served(cards(2, (8, 6)), AMPERE, {"kv-cache-dtype": "auto"}, NONE)),
        ("GF207", served(cards(2, (8, 6)), AMPERE, {"kv-cache-dtype": "fp8"}, NEW)),
        ("GF208", served(cards(holds=["libnvjitlink-12-8"], packages={"cuda-toolkit-12-8": "12.8"}), PLAIN)),
        ("GF208", served(cards(holds=["nvidia-driver-580", "cuda-drivers-580", "libcurl4"]), PLAIN)),
        ("GF208", served(cards(holds=["cuda-nvcc-12-9"], apt=OUR_HOLD), PLAIN)),
        ("GF114", served(cards(), engine("sm75", apt=["g++", "cuda-toolkit-12-8", "cuda-nvcc-12-8"]))),
        ("GF209", env(PLAIN, CC="gcc-14", CXX="g++-14", CUDAHOSTCXX="g++-14")),
        ("GF209", env(PLAIN, CC="gcc", CXX="g++")),
        ("GF211", env(PLAIN, CUDA_HOME="/usr/local/cuda-12.8/")),
        ("GF211", env(PLAIN)),
        ("GF212", env(PLAIN, TORCH_CUDA_ARCH_LIST="7.0 7.5+PTX")),
        ("GF210", served(cards(**SMALL), JIT, None, {"serve_env": {"MAX_JOBS": "4"}})),
        ("GF221", served(cards(2, (7, 0)), torch("2.10.0+cu128", "sm70"))),
        ("GF227", toolkit("13-2", cards(), torch("2.13.0+cu130", "sm75"))),
        ("GF227", served(cards(), torch("2.13.0+cu130", "sm75"))),
        ("GF227", toolkit("none", cards(), torch("2.13.0+cu130", "sm75"))),
        ("GF221", served(cards(2, (7, 0)), torch("2.13.0+cu126", "sm70"))),
        ("GF222", served(cards(driver=OLD), torch("2.10.0+cu128", "sm75"))),
        ("GF224", served(cards(), torch("2.13.0+cu130", "sm75", flashinfer="0.6.16.post3"))),
        ("GF224", served(cards(2, (8, 6)), torch("2.11.0+cu130", "sm86", flashinfer="0.6.12"))),
    ],
)  # fmt: skip
def test_what_is_in_order_is_not(rule: str, found: BoxPlan) -> None:
    assert said(found, rule) == []


def test_an_older_toolkit_is_no_remedy_where_torch_wants_the_driver_too() -> None:
    found = served(cards(driver=OLD), torch("2.13.0+cu130", "sm75"), None, NEW)
    assert [finding.remedy for finding in said(found, "GF204")] == ["install driver 580 or later"]


def test_what_is_true_of_a_stack_is_said_once() -> None:
    found = served(cards(2, (7, 0)), engine("sm75"), None, {"tensor_parallel_size": 1, "instances": 2})
    assert len(found.instances) == 2 and len(said(found, "GF220")) == 1


def test_flashinfer_of_a_stack_made_for_sm75_is_information() -> None:
    by = engine("sm75", versions={"torch": "2.11.0+cu130", "flashinfer": "0.6.12"}, provides=["fp8-kv-sm75"])
    assert [finding.level for finding in said(served(cards(), by), "flashinfer-sm75")] == ["info"]
