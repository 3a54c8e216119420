"""What the probe reads of the system and its hardware, from boxes made of a few files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostkit import driver, hardware, packages, system, toolkits
from hostkit.roots import Roots

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
STATUS = """\
Package: g++
Status: install ok installed
Architecture: amd64
Version: 4:12.2.0-3

Package: libgomp1
Status: install ok installed
Architecture: {foreign}
Version: 1

Package: libgomp1
Status: hold ok installed
Architecture: {native}
Version: 12.2.0-14

Package: removed
Status: deinstall ok config-files
Architecture: all
Version: 2
"""


@pytest.fixture
def box(tmp_path: Path) -> Path:
    return tmp_path


def put(box: Path, path: str, text: str) -> None:
    target = box / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


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
    assert facts["cpu"] == {"model": "AMD Ryzen Threadripper 2950X", "cores": 1, "threads": 2, "flags": ["avx", "avx2"]}
    assert facts["memory"] == {"total_mib": 64000, "available_mib": 32000, "swap_mib": 2000}
    assert facts["shm_mib"] == 0


def test_disk_of_the_nearest_parent_that_exists(box: Path) -> None:
    disks = hardware.read_disks(Roots(str(box)))["disks"]
    assert disks["/opt/gpufleet"]["total_mib"] >= disks["/opt/gpufleet"]["free_mib"] > 0


def test_packages_count_when_installed_for_this_architecture(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_ARCHITECTURE", "amd64")
    put(box, packages.STATUS, STATUS.format(native="amd64", foreign="i386"))
    found = packages.read(Roots(str(box)), ["g++", "libgomp1", "removed", "never-there"])["packages"]
    assert found == {"g++": "4:12.2.0-3", "libgomp1": "12.2.0-14", "removed": None, "never-there": None}


def test_no_packages_asked_for_needs_no_dpkg(box: Path) -> None:
    assert packages.read(Roots(str(box)), []) == {"packages": {}}


def test_toolkits_have_a_compiler(box: Path) -> None:
    put(box, "/usr/local/cuda-13.0/bin/nvcc", "")
    (box / "usr/local/cuda-13.0/bin/nvcc").chmod(0o755)
    put(box, "/usr/local/cuda-12.8/lib64/libcudart.so.12", "")
    (box / "usr/local/cuda").symlink_to("cuda-13.0")
    assert toolkits.read(Roots(str(box))) == {"toolkits": {"13.0": "/usr/local/cuda-13.0"}}


def test_driver_from_files_alone(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    roots = Roots(str(box))
    assert driver.read(roots) == {"driver": None}
    put(box, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.173.02", "")
    (box / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.173.02")
    assert driver.read(roots) == {"driver": {"version": "580.173.02", "cuda": None, "module": None}}
    put(box, "/sys/module/nvidia/version", "580.159.03\n")
    assert driver.read(roots) == {"driver": {"version": "580.173.02", "cuda": None, "module": "580.159.03"}}


def test_driver_library_that_only_the_loader_knows(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    put(box, "/etc/ld.so.cache", "glibc-ld.so.cache1.1\0libnvidia-ml.so.1\0/opt/nvidia/libnvidia-ml.so.1\0")
    assert driver.library_path(Roots(str(box))) == "libnvidia-ml.so.1"
