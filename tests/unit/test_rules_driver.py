"""Rules about driver and cards."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet.plan import BoxPlan
from tests.unit.findings import Case, assert_fires, cards, engine, identify, said, served
from tests.unit.fleets import cpu_facts, plan

V100 = engine("sm70")
TURING = engine("sm75", cuda_toolkit="13-0")


def driver(**more: Any) -> dict[str, Any]:
    return {"version": "580.159.03", "cuda": "13.0", "module": "580.159.03", "flavour": "closed", **more}


def volta(**facts: Any) -> BoxPlan:
    return served(cards(2, (7, 0), **facts), V100)


def turing(data: dict[str, Any] | None = None, **facts: Any) -> BoxPlan:
    return served(cards(2, **facts), TURING, None, data)


def each(**more: Any) -> BoxPlan:
    return turing(of_each=more)


def beside_an_old_card() -> BoxPlan:
    """A 1080 Ti next to two 2080 Ti."""
    facts = cards(3)
    facts["gpus"][0].update({"name": "NVIDIA GeForce GTX 1080 Ti", "compute_capability": [6, 1]})
    return served(facts, engine("sm75", default_for=["sm75"]), None, {"stack": None})


def packages(**versions: tuple[str, str, str]) -> dict[str, Any]:
    keys = ("version", "origin", "candidate")
    return {name.replace("_", "-"): dict(zip(keys, found, strict=True)) for name, found in versions.items()}


def xid(code: int, count: int = 1) -> list[dict[str, Any]]:
    return [{"code": code, "bus_id": "0000:01:00", "count": count, "last": f"NVRM: Xid (PCI:0000:01:00): {code}"}]


def changed(found: BoxPlan) -> BoxPlan:
    found.hardware_changes.append("GPU 1 is gone")
    return found


BOTH = packages(libnvidia_compute_580=("580.1", "NVIDIA", "580.1"), nvidia_dkms_580=("580.1", "Ubuntu", "580.1"))
NEXT = packages(nvidia_driver=("580.159.03-0ubuntu1", "NVIDIA", "1:590.44-1"))
NO_CARDS = {"gpus": [], "links": {}}
XORG = [{"pid": 9, "memory_mib": 300, "name": "/usr/lib/xorg/Xorg", "kind": "graphics"}]

POWER = {"host": {"power_limit": 200}}
ONE_LANE = {"width": 1, "width_max": 16}

CASES = [
    Case("GF101", "error", "580", volta(driver=driver(version="590.44.01", cuda="13.1"))),
    Case("GF102", "error", "open kernel modules", volta(driver=driver(flavour="open"))),
    Case("GF103", "error", "no reason given", plan(cpu_facts(driver=driver()))),
    Case("GF104", "error", "reboot", plan(cpu_facts(driver=driver(version="580.173.02")))),
    Case("GF105", "warning", "570.10", turing(driver=driver(module_on_disk="570.10"))),
    Case("GF106", "error", "blacklist nouveau", plan(cpu_facts(nouveau=True, driver=driver(module=None)))),
    Case("GF106", "warning", "nouveau", plan(cpu_facts(nouveau=True))),
    Case("GF107", "error", "mokutil", plan(cpu_facts(secure_boot=True, driver=driver(module=None)))),
    Case("GF108", "warning", "open kernel modules", turing(driver=driver(flavour="open"))),
    Case("GF109", "error", "GPU 1 is gone", changed(turing())),
    Case("GF110", "warning", "to 590", turing(driver=driver(), nvidia_packages=NEXT)),
    Case("GF111", "warning", "NVIDIA and Ubuntu", turing(driver=driver(), nvidia_packages=BOTH)),
    Case("GF112", "warning", "nvidia-uninstall", turing(nvidia_installer=True)),
    Case("GF113", "error", "cuda-compat", turing(cuda_compat=["/usr/local/cuda-13.0/compat"])),
    Case("GF113", "warning", "cuda-compat", volta(cuda_compat=["/usr/local/cuda-12.8/compat"])),
    Case("GF120", "error", "fallen off the bus", turing(xid=xid(79))),
    Case("GF120", "error", "NVLink", turing(xid=xid(74))),
    Case("GF120", "warning", "Xid 31", turing(xid=xid(31, 4))),
    Case("GF120", "warning", "Xid 62", turing(xid=xid(62))),
    Case("GF120", "info", "Xid 43", turing(xid=xid(43))),
    Case("GF121", "error", "2 GPUs are seen, 3", turing({"expect": {"gpus": 3}})),
    Case("GF122", "error", "-mig 0", each(mig=True)),
    Case("GF123", "info", "GPU 0 and 1", each(ecc=True)),
    Case("GF124", "info", "persistence mode is off", each(persistence=False)),
    Case("GF125", "info", "host.power_limit: 250", each(power={"limit_w": 200, "default_w": 250})),
    Case("GF124", "warning", "persistence mode is off", turing(POWER, of_each={"persistence": False})),
    Case("GF130", "error", "100 to 280 W", turing({"host": {"power_limit": 300}})),
    Case("GF130", "error", "cannot be limited to 99 W", turing({"host": {"power_limit": {"RTX 2080 Ti": 99}}})),
    Case("GF131", "warning", "NVIDIA GeForce RTX 2080 Ti", turing({"host": {"power_limit": {"RTX 2080": 200}}})),
    Case("GF126", "info", "8 PCIe lanes of 16", each(pcie={"width": 8, "width_max": 16})),
    Case("GF126", "warning", "1 PCIe", served(cards(link="PHB", of_each={"pcie": ONE_LANE}), TURING)),
    Case("GF127", "warning", "Xorg", each(processes=XORG)),
    Case("GF127", "warning", "gdm3", turing(of_each={"display_active": True}, display_manager="gdm3")),
    Case("GF128", "warning", "newer cards", plan(cards(1, (6, 1)))),
    Case("GF128", "info", "stays idle", beside_an_old_card()),
    Case("GF129", "warning", "WSL", turing(virtualization="wsl")),
    Case("GF129", "info", "nvidia-uvm", turing(virtualization="lxc")),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_it_is_found(case: Case) -> None:
    assert_fires(case)


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("GF101", volta(driver=driver())),
        ("GF101", turing(driver=driver(version="595.45.04"))),
        ("GF102", volta(driver=driver(flavour=None))),
        ("GF103", plan(cpu_facts(driver=driver(version="580.173.02")))),  # GF104 says why
        ("GF104", turing(driver=driver(module=None))),
        ("GF105", turing(driver=driver(module_on_disk="580.159.03"))),
        ("GF106", turing(nouveau=True)),
        ("GF107", turing(secure_boot=True, driver=driver())),
        ("GF108", turing(driver=driver(version="595.84", flavour="open"))),
        ("GF110", turing(driver=driver(), nvidia_packages=packages(cuda_toolkit_13_0=("13.0.1", "N", "13.0.2")))),
        (
            "GF111",
            turing(driver=driver(), nvidia_packages={**BOTH, "nvidia-dkms-580": {"version": "9", "origin": "U"}}),
        ),
        ("GF113", plan(cpu_facts(cuda_compat=["/usr/local/cuda-13.0/compat"]))),
        ("GF125", each(power={"limit_w": 250, "default_w": 250})),
        ("GF125", each(power={"limit_w": None, "default_w": None})),
        ("GF124", turing({"host": {"persistence_mode": True}}, of_each={"persistence": False})),
        ("GF125", turing(POWER, of_each={"power": {"limit_w": 200, "default_w": 250, "min_w": 100, "max_w": 280}})),
        ("GF130", turing(POWER)),
        ("GF130", turing({"host": {"power_limit": 300}}, of_each={"power": {"min_w": None, "max_w": None}})),
        ("GF131", turing({"host": {"power_limit": {"RTX 2080 Ti": 200, "RTX 3090": 300}}})),
        ("GF131", plan(cpu_facts(), {"host": {"power_limit": {"RTX 3090": 300}}})),
        ("GF126", each(pcie={"width": 16, "width_max": 16, "gen": 1, "gen_max": 3})),
        ("GF127", each(processes=[{"pid": 9, "memory_mib": 9, "name": "VLLM::EngineCore", "kind": "compute"}])),
        ("GF129", plan(cpu_facts(virtualization="wsl"))),
    ],
)
def test_what_is_in_order_is_not(rule: str, found: BoxPlan) -> None:
    assert said(found, rule) == []


def test_a_v100_beside_other_cards_is_enough() -> None:
    facts = cards(2, (8, 6), driver=driver(version="590.44.01", cuda="13.1"))
    facts["gpus"][1].update(compute_capability=[7, 0], name="Tesla V100-PCIE-16GB")
    assert "Tesla V100-PCIE-16GB" in said(served(facts, engine("sm70", "sm86")), "GF101")[0].message


def test_lanes_are_looked_at_per_card() -> None:
    facts = cards(3, link="SYS", of_each={"pcie": {"width": 4, "width_max": 16}})
    facts["links"]["0-1"] = "NV2"
    levels = [finding.level for finding in said(served(facts, TURING), "GF126")]
    assert levels == ["warning", "info", "info"]  # warnings come first: the card without a bridge
