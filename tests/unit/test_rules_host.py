"""Rules about the box itself."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet.plan import BoxPlan
from gpufleet.runtime import Runtime
from tests.unit.findings import Case, assert_fires, cards, engine, identify, said, served
from tests.unit.fleets import cpu_facts, plan, stack

PORT = {"8000": {"pid": 42, "command": "python3", "unit": "my-llm.service"}}
OURS = {"8000": {"pid": 42, "command": "vllm", "unit": "gpufleet-tiny.service"}}
UBUNTU_20 = {"id": "ubuntu", "version_id": "20.04", "arch": "x86_64"}
SMALL = {"/opt/gpufleet": {"free_mib": 3000, "total_mib": 4000}}
BIG = stack(disk_mib=5000)
OF_MODELS = {"free_mib": 900, "total_mib": 1000, "mount": "/srv/models", "coming_mib": 0}


def two_disks(free: int = 10_000, **models: Any) -> dict[str, Any]:
    """The models' disk is another one."""
    home = {"free_mib": free, "total_mib": 20_000, "mount": "/"}
    return {"/opt/gpufleet": home, "/opt/gpufleet/models": {**OF_MODELS, **models}}


UPGRADES = {"enabled": True, "blacklist": ["linux-"]}
SAFE = {"enabled": True, "blacklist": ["nvidia", "libnvidia", "linux-"]}
SAVING = {"cores": 8, "threads": 16, "governor": "powersave"}
NO_PACKAGES = [{"source": "packages", "message": "no answer"}]
TWO_PORTS = [{"model": "tiny", "port": 8000}, {"model": "tiny", "name": "b", "port": 8000}]


def gpu(**facts: Any) -> BoxPlan:
    return served(cards(**facts), engine("sm75"))


def refused(wanted: int) -> BoxPlan:
    """A container that did not take vm.swappiness 10, and what is wanted of it now."""
    known = {"swappiness": {"wanted": 10, "why": "/proc/sys is read-only here"}}
    told = {"settings": "0" * 16, "unit": "current", "refused": known}
    return plan(cpu_facts(host=told), {"host": {"swappiness": wanted}})


MISSING = {"installed": [], "held": [], "upgrades": "missing"}
NO_HOLDS = served(
    cards(unattended_upgrades=UPGRADES, apt=MISSING), engine("sm75"), None, {"host": {"hold_packages": False}}
)

CASES = [
    Case("GF601", "error", "20.04", plan(cpu_facts(os=UBUNTU_20))),
    Case("GF601", "error", "aarch64", plan(cpu_facts(os={**cpu_facts()["os"], "arch": "aarch64"}))),
    Case("GF602", "error", "g++", plan(cpu_facts(), {"host": {"install_packages": False}})),
    Case("GF603", "error", "6029 MiB", plan(cpu_facts(disks=SMALL), stacks=[BIG])),
    Case("GF603", "error", "gpufleet/models has 900 MiB free, 1029 MiB are", plan(cpu_facts(disks=two_disks()))),
    Case("GF603", "error", "/opt/gpufleet has 900 MiB free", plan(cpu_facts(disks=two_disks(900, mount="/")))),
    Case("GF604", "error", "my-llm.service (pid 42)", plan(cpu_facts(ports=PORT))),
    Case("GF604", "error", "both want port 8000", plan(cpu_facts(), {"serve": TWO_PORTS})),
    Case("GF605", "warning", "timed out", plan(cpu_facts(errors=[{"source": "cpu", "message": "timed out"}]))),
    Case("GF606", "warning", "Package-Blacklist", gpu(unattended_upgrades=UPGRADES)),
    Case("GF606", "warning", "#clear", gpu(unattended_upgrades=UPGRADES, apt={**MISSING, "upgrades": "current"})),
    Case("GF606", "warning", "hold_packages", NO_HOLDS),
    Case("GF606", "warning", "libnvidia", gpu(unattended_upgrades={"enabled": True, "blacklist": ["nvidia-", "("]})),
    Case("GF607", "warning", "performance", gpu(cpu=SAVING)),
    Case("GF608", "warning", "/etc/hosts", plan(cpu_facts(hostname_resolves=False))),
    Case("GF610", "warning", "vm.swappiness is not 10: /proc/sys is read-only", refused(10)),
    Case("GF609", "warning", "timedatectl", plan(cpu_facts(clock={"synchronized": False}))),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_it_is_found(case: Case) -> None:
    assert_fires(case)


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("GF602", plan(cpu_facts())),
        ("GF602", plan(cpu_facts(errors=NO_PACKAGES), {"host": {"install_packages": False}})),
        ("GF603", plan(cpu_facts(disks=SMALL, runtimes={Runtime(BIG, "3.11").name: {"complete": True}}), stacks=[BIG])),
        ("GF603", plan(cpu_facts(disks=two_disks(900, free_mib=1029)))),
        ("GF603", plan(cpu_facts(disks=two_disks(coming_mib=5)))),
        ("GF604", plan(cpu_facts(ports=OURS))),
        ("GF606", gpu(unattended_upgrades=SAFE)),
        ("GF606", gpu(unattended_upgrades=UPGRADES, holds=["nvidia-driver-580"])),
        ("GF606", gpu(unattended_upgrades={"enabled": True, "blacklist": ["^(lib)?nvidia-.*"]})),
        ("GF606", gpu(unattended_upgrades={"enabled": False, "blacklist": []})),
        ("GF606", gpu(unattended_upgrades=UPGRADES, apt=MISSING)),
        ("GF606", plan(cpu_facts(unattended_upgrades=UPGRADES))),
        ("GF607", gpu(cpu={"cores": 8, "threads": 16, "governor": "performance"})),
        ("GF607", gpu(cpu={"cores": 8, "threads": 16, "governor": None})),
        ("GF607", served(cards(cpu=SAVING), engine("sm75"), None, {"host": {"governor": "performance"}})),
        ("GF608", plan(cpu_facts(hostname_resolves=True))),
        ("GF608", plan(cpu_facts(hostname_resolves=False, hosts_entry=False))),
        ("GF610", refused(20)),
        ("GF609", plan(cpu_facts(clock={"synchronized": None}))),
    ],
)
def test_what_is_in_order_is_not(rule: str, found: BoxPlan) -> None:
    assert said(found, rule) == []
