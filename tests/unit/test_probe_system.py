"""What the probe reads of the system and its hardware, from boxes made of a few files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hostkit import disks, driver, hardware, system, toolkits
from hostkit.roots import Roots
from tests.unit.boxes import Told, put

CPUINFO = """\
processor\t: 0
model name\t: AMD Ryzen Threadripper 2950X
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu avx avx2 nopl

processor\t: 1
model name\t: AMD Ryzen Threadripper 2950X
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu avx avx2 nopl

"""


@pytest.fixture
def box(tmp_path: Path) -> Path:
    return tmp_path


def test_distribution_user_and_machine(box: Path) -> None:
    put(box, "/etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n')
    put(box, "/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    put(box, "/etc/passwd", "root:x:0:0::/root:/bin/sh\ngpufleet:x:999:999::/:/bin/false\n")
    put(box, "/run/systemd/container", "systemd-nspawn")
    facts = system.read(Roots(str(box)))
    assert (facts["os"]["id"], facts["os"]["version_id"], facts["os"]["codename"]) == ("ubuntu", "24.04", "noble")
    assert facts["machine_id"] == "0123456789abcdef0123456789abcdef"
    assert facts["user"] == {"exists": True}
    assert facts["virtualization"] == "systemd-nspawn"
    assert facts["python"]["headers"] is False


def test_a_box_that_never_got_a_machine_id(box: Path) -> None:
    put(box, "/etc/machine-id", "uninitialized\n")
    put(box, "/etc/passwd", "notgpufleet:x:1:1::/:/bin/sh\n")
    facts = system.read(Roots(str(box)))
    assert facts["machine_id"] is None
    assert facts["user"] == {"exists": False}
    assert facts["virtualization"] is None


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("/sys/class/dmi/id/sys_vendor", "QEMU\n", "qemu"),
        ("/sys/class/dmi/id/product_name", "VirtualBox\n", "oracle"),
        ("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\n", "vm"),
    ],
)
def test_virtual_machines(box: Path, path: str, text: str, expected: str) -> None:
    put(box, path, text)
    assert system.read(Roots(str(box)))["virtualization"] == expected


def test_processor_and_memory(box: Path) -> None:
    put(box, "/proc/cpuinfo", CPUINFO)
    put(box, "/proc/meminfo", "MemTotal:       65536000 kB\nMemAvailable:   32768000 kB\nSwapTotal:       2048000 kB\n")
    facts = hardware.read(Roots(str(box)))
    assert facts["cpu"] == {
        "model": "AMD Ryzen Threadripper 2950X",
        "cores": 1,
        "threads": 2,
        "flags": ["avx", "avx2"],
        "numa_nodes": 1,
        "governor": None,
    }
    assert facts["memory"] == {"total_mib": 64000, "available_mib": 32000, "swap_mib": 2000}
    assert (facts["shm_mib"], facts["shm_free_mib"]) == (0, 0)


def test_nodes_and_governor(box: Path) -> None:
    put(box, "/proc/cpuinfo", CPUINFO)
    put(box, "/proc/meminfo", "MemTotal: 65536000 kB\nMemAvailable: 32768000 kB\n")
    for node in ("node0", "node1"):
        put(box, f"/sys/devices/system/node/{node}/cpulist", "0\n")
    put(box, "/sys/devices/system/node/online", "0-1\n")
    put(box, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    put(box, "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n")
    cpu = hardware.read(Roots(str(box)))["cpu"]
    assert (cpu["numa_nodes"], cpu["governor"]) == (2, "performance, powersave")


def test_disks_of_the_nearest_parents_that_exist(box: Path) -> None:
    put(
        box,
        "/proc/self/mountinfo",
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "23 22 0:5 / /opt rw shared:1 master:2 - xfs /dev/sdb1 rw\n"
        "24 22 0:6 / /opt rw - btrfs /dev/sdc1 rw\n"
        "25 22 0:7 / /var/my\\040data rw - nfs4 server:/x rw\n",
    )
    (box / "opt").mkdir()
    told: list[dict[str, Any]] = []
    found = disks.read(Roots(str(box)), Told(told))["disks"]
    assert {path: disk["filesystem"] for path, disk in found.items()} == {
        "/opt/gpufleet": "btrfs",
        "/": "ext4",
        "/var": "ext4",
        "/opt/gpufleet/models": "btrfs",
    }
    assert {path: disk["mount"] for path, disk in found.items()}["/opt/gpufleet/models"] == "/opt"
    assert all(disk["total_mib"] >= disk["free_mib"] > 0 for disk in found.values())
    assert set(told[0]["disks"]) == {"/opt/gpufleet"}


def test_what_has_come_of_models_is_told(box: Path) -> None:
    assert disks.read(Roots(str(box)), Told([]))["disks"][disks.MODELS]["coming_mib"] == 0
    put(box, f"/opt/gpufleet/models/.store/{'a' * 64}/x.part", "x" * (3 << 20))
    put(box, f"/opt/gpufleet/models/.store/{'b' * 64}/y", "y" * (2 << 20))
    (box / "opt/gpufleet/models/m").mkdir()
    assert disks.read(Roots(str(box)), Told([]))["disks"][disks.MODELS]["coming_mib"] == 5
    os.link(box / f"opt/gpufleet/models/.store/{'b' * 64}/y", box / "opt/gpufleet/models/m/y")
    assert disks.read(Roots(str(box)), Told([]))["disks"][disks.MODELS]["coming_mib"] == 3


def test_toolkits_have_a_compiler(box: Path) -> None:
    put(box, "/usr/local/cuda-13.0/bin/nvcc", "")
    (box / "usr/local/cuda-13.0/bin/nvcc").chmod(0o755)
    put(box, "/usr/local/cuda-12.8/lib64/libcudart.so.12", "")
    (box / "usr/local/cuda").symlink_to("cuda-13.0")
    assert toolkits.read(Roots(str(box))) == {"toolkits": {"13.0": "/usr/local/cuda-13.0"}}


MODINFO = """\
filename:       /lib/modules/6.8.0-79-generic/updates/dkms/nvidia.ko.zst
version:        580.173.02
license:        {license}
alias:          pci:v000010DEd*sv*sd*bc06sc80i00*
"""
PROC_VERSION = "NVRM version: NVIDIA UNIX {word} 580.159.03  Tue Nov  4 00:00:00 UTC 2025\nGCC version: gcc 13.3.0\n"


def test_driver_from_files_alone(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    roots = Roots(str(box))
    nothing = {"cuda": None, "module": None, "flavour": None, "module_on_disk": None}
    assert driver.read(roots, Told()) == {"driver": None, "nouveau": False}
    put(box, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.173.02", "")
    (box / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.173.02")
    assert driver.read(roots, Told())["driver"] == {**nothing, "version": "580.173.02"}
    put(box, "/sys/module/nvidia/version", "580.159.03\n")
    assert driver.read(roots, Told())["driver"] == {**nothing, "version": "580.173.02", "module": "580.159.03"}


def test_nouveau_in_the_place_of_the_driver(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    put(box, "/sys/module/nouveau/refcnt", "1\n")
    assert driver.read(Roots(str(box)), Told()) == {"driver": None, "nouveau": True}


@pytest.mark.parametrize(
    ("loaded", "license", "flavour"),
    [
        ("x86_64 Kernel Module", "Dual MIT/GPL", "closed"),  # what is loaded counts
        ("Open Kernel Module for x86_64", "NVIDIA", "open"),
        (None, "NVIDIA", "closed"),
        (None, "Dual MIT/GPL", "open"),
        (None, "GPL", None),
    ],
)
def test_flavour_of_the_kernel_module(box: Path, loaded: str | None, license: str, flavour: str | None) -> None:
    put(box, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "")
    if loaded:
        put(box, "/proc/driver/nvidia/version", PROC_VERSION.format(word=loaded))
    roots = Roots(str(box), {"modinfo": MODINFO.format(license=license)})
    told: list[dict[str, Any]] = []
    found = driver.read(roots, Told(told))["driver"]
    assert (found["flavour"], found["module_on_disk"]) == (flavour, "580.173.02")
    # before modinfo, which may hang
    assert told[0]["driver"]["version"] == "unknown"


def test_driver_library_that_only_the_loader_knows(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    put(box, "/etc/ld.so.cache", "glibc-ld.so.cache1.1\0libnvidia-ml.so.1\0/opt/nvidia/libnvidia-ml.so.1\0")
    assert driver.library_path(Roots(str(box))) == "libnvidia-ml.so.1"
