"""What the kernel and the firmware say: Xid events, IOMMU and ACS, secure boot, the clock, and who runs beside."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from hostkit import boot, clock, compilers, iommu, kernel_log, resolver
from hostkit.roots import Roots
from tests.unit.boxes import Told, put

FALLEN = "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
OLD = "NVRM: Xid (0000:41:00): 31, Ch 00000018, MMU Fault: ENGINE GRAPHICS"
LOG = f"""\
Linux version 6.8.0
NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.03
NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=first, GPU has fallen off the bus.
{OLD}
usb 1-1: Xid of something else
[  123.456] {FALLEN}
"""


def test_xid_events_by_card_and_code(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    assert kernel_log.read(Roots("/", kernel_log=str(tmp_path / "log")), Told()) == {
        "kernel_log": True,
        "xid": [
            {"code": 79, "bus_id": "0000:01:00", "count": 2, "last": FALLEN},
            {"code": 31, "bus_id": "0000:41:00", "count": 1, "last": OLD},
        ],
    }


def test_a_long_line_is_cut_and_a_storm_is_one_item(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"{FALLEN}{'x' * 500}\n" * 1000)
    (event,) = kernel_log.read(Roots("/", kernel_log=str(tmp_path / "log")), Told())["xid"]
    assert (event["count"], len(event["last"])) == (1000, 200)


@pytest.mark.parametrize(
    ("programs", "read", "count"),
    [
        ({"journalctl": LOG, "dmesg": ""}, True, 2),
        ({"journalctl": "", "dmesg": LOG}, True, 2),  # a container's journal is empty
        ({"dmesg": "Linux version 6.8.0"}, True, 0),
        ({"journalctl": ""}, False, 0),
        ({}, False, 0),
    ],
)
def test_the_journal_first_then_the_kernels_buffer(programs: dict[str, str], read: bool, count: int) -> None:
    found = kernel_log.read(Roots("/nowhere", programs), Told())
    assert (found["kernel_log"], len(found["xid"]), found.get("errors", [])) == (read, count, [])


def test_a_log_that_may_not_be_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: str) -> None:
        raise OSError("dmesg: read kernel buffer failed: Operation not permitted")

    roots = Roots()
    monkeypatch.setattr(roots, "lines", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = kernel_log.read(roots, Told())
    assert (found["xid"], found["kernel_log"]) == ([], False)
    assert "only root" in found["errors"][0] and "Operation not permitted" in found["errors"][0]


def configuration(*capabilities: tuple[int, int], size: int = 4096) -> bytes:
    """A device's configuration space with extended capabilities (id, what is at byte 4 of each)."""
    space = bytearray(size)
    for number, (identity, value) in enumerate(capabilities):
        offset = 0x100 + 0x40 * number
        following = offset + 0x40 if number + 1 < len(capabilities) else 0
        struct.pack_into("<II", space, offset, identity | 1 << 16 | following << 20, value)
    return bytes(space)


def device(box: Path, name: str, kind: str, config: bytes, vendor: str = "0x8086", group: str | None = None) -> None:
    for file, text in (("class", kind), ("vendor", vendor)):
        put(box, f"{iommu.DEVICES}/{name}/{file}", text + "\n")
    (box / iommu.DEVICES.lstrip("/") / name / "config").write_bytes(config)
    if group:
        link = box / iommu.DEVICES.lstrip("/") / name / "iommu_group"
        link.symlink_to(f"../../../kernel/iommu_groups/{group}")


AER = (0x0001, 0)
BRIDGE, CARD = "0x060400", "0x030000"


def test_bridges_that_redirect(tmp_path: Path) -> None:
    device(tmp_path, "0000:00:01.0", BRIDGE, configuration(AER, (0x000D, 0x001D << 16 | 0x00FF)))  # all on
    device(tmp_path, "0000:00:02.0", BRIDGE, configuration(AER, (0x000D, 0x0001 << 16 | 0x00FF)))  # source validation
    device(tmp_path, "0000:00:03.0", BRIDGE, configuration((0x000D, 0x0008 << 16)))  # completions alone
    device(tmp_path, "0000:00:04.0", BRIDGE, configuration(AER))
    device(tmp_path, "0000:00:05.0", BRIDGE, configuration(size=256))  # conventional PCI
    device(tmp_path, "0000:01:00.0", CARD, configuration((0x000D, 0x001D << 16)), "0x10de")  # no bridge
    assert iommu.read(Roots(str(tmp_path)))["iommu"]["acs"] == ["0000:00:01.0", "0000:00:03.0"]


def test_a_capability_list_that_runs_in_a_circle(tmp_path: Path) -> None:
    space = bytearray(configuration(AER))
    struct.pack_into("<I", space, 0x100, 0x0001 | 0x100 << 20)
    device(tmp_path, "0000:00:01.0", BRIDGE, bytes(space))
    device(tmp_path, "0000:00:02.0", BRIDGE, b"\xff" * 4096)  # a bridge that is gone
    assert iommu.read(Roots(str(tmp_path)))["iommu"]["acs"] == []


def test_acs_that_cannot_be_told(tmp_path: Path) -> None:
    assert iommu.read(Roots(str(tmp_path)))["iommu"] == {"enabled": False, "passthrough": None, "acs": None}
    device(tmp_path, "0000:00:01.0", BRIDGE, configuration(size=64))  # what others than root may read
    assert iommu.read(Roots(str(tmp_path)))["iommu"]["acs"] is None


@pytest.mark.parametrize(
    ("types", "words", "passthrough"),
    [
        (["identity", "identity"], "quiet", True),
        (["identity", "DMA-FQ"], "iommu=pt", False),  # the group's own word counts
        ([], "quiet iommu=pt", True),
        ([], "intel_iommu=off", True),
        ([], "amd_iommu=off", True),
        ([], "iommu.passthrough=1", True),
        ([], "intel_iommu=on", None),
    ],
)
def test_passthrough(tmp_path: Path, types: list[str], words: str, passthrough: bool | None) -> None:
    put(tmp_path, "/proc/cmdline", words + "\n")
    put(tmp_path, "/sys/class/iommu/dmar0/uevent", "")
    put(tmp_path, f"{iommu.GROUPS}/9/type", "DMA\n")
    device(tmp_path, "0000:02:00.0", "0x020000", b"", group="9")  # a network card's group says nothing of a GPU's
    for number, kind in enumerate(types):
        put(tmp_path, f"{iommu.GROUPS}/{number}/type", kind + "\n")
        device(tmp_path, f"0000:0{number + 3}:00.0", CARD, b"", "0x10de", str(number))
    found = iommu.read(Roots(str(tmp_path)))["iommu"]
    assert (found["enabled"], found["passthrough"]) == (True, passthrough)


@pytest.mark.parametrize(
    ("variable", "secure"), [(b"\6\0\0\0\1", True), (b"\6\0\0\0\0", False), (b"", None), (None, None)]
)
def test_secure_boot(tmp_path: Path, variable: bytes | None, secure: bool | None) -> None:
    if variable is not None:
        put(tmp_path, boot.SECURE_BOOT, "")
        (tmp_path / boot.SECURE_BOOT.lstrip("/")).write_bytes(variable)
    assert boot.read(Roots(str(tmp_path)))["secure_boot"] is secure


@pytest.mark.parametrize("tree", ["sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice"])
def test_the_display_manager_that_runs(tmp_path: Path, tree: str) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / "display-manager.service").symlink_to("/lib/systemd/system/gdm3.service")
    put(tmp_path, "/lib/systemd/system/gdm.service", "")
    (tmp_path / "lib/systemd/system/gdm3.service").symlink_to("gdm.service")
    assert boot.read(Roots(str(tmp_path)))["display_manager"] is None
    (tmp_path / tree / "gdm.service").mkdir(parents=True)
    assert boot.read(Roots(str(tmp_path)))["display_manager"] == "gdm.service"


def test_overcommit_installer_and_compatibility_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/cuda/compat/:/opt/other")
    nothing = boot.read(Roots(str(tmp_path)))
    assert (nothing["overcommit_memory"], nothing["nvidia_installer"], nothing["cuda_compat"]) == (None, False, [])
    put(tmp_path, "/proc/sys/vm/overcommit_memory", "2\n")
    put(tmp_path, boot.INSTALLER, "")
    cached = ["/usr/local/cuda-13.0/compat/libcuda.so.1", "/gone/compat/libcuda.so.1", "/usr/lib/libcuda.so.1"]
    put(tmp_path, "/etc/ld.so.cache", "glibc-ld.so.cache1.1\0libcuda.so.1\0" + "".join(f"{path}\0" for path in cached))
    for path in (cached[0], cached[2], "/opt/cuda/compat/libcuda.so.1", "/opt/other/libcuda.so.1"):
        put(tmp_path, path, "")
    found = boot.read(Roots(str(tmp_path)))
    assert (found["overcommit_memory"], found["nvidia_installer"]) == (2, True)
    assert found["cuda_compat"] == ["/opt/cuda/compat/libcuda.so.1", cached[0]]


def test_a_clock_kept_by_timesyncd(tmp_path: Path) -> None:
    assert clock.read(Roots(str(tmp_path)))["clock"]["synchronized"] is None
    put(tmp_path, clock.MARK, "")
    assert clock.read(Roots(str(tmp_path)))["clock"]["synchronized"] is True


def test_the_kernels_word_on_this_machines_clock() -> None:
    import ctypes

    class Timex(ctypes.Structure):
        _fields_ = [
            ("modes", ctypes.c_uint),
            *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
            ("status", ctypes.c_int),
            ("rest", ctypes.c_char * 256),
        ]

    asked = Timex()
    answered = ctypes.CDLL(None).adjtimex(ctypes.byref(asked)) >= 0
    expected = not asked.status & 0x40 if answered else None
    assert (
        (clock.read(Roots())["clock"]["synchronized"] is True)
        if os.path.exists(clock.MARK)
        else (clock.read(Roots())["clock"]["synchronized"] is expected)
    )


def test_the_boxs_own_name(tmp_path: Path) -> None:
    name = os.uname().nodename
    put(tmp_path, "/etc/hosts", f"127.0.0.1 localhost\n# 127.0.1.1 {name}\n127.0.1.1 not-{name}\n")
    assert resolver.read(Roots(str(tmp_path)), Told()) == {"hostname_resolves": False}
    put(tmp_path, "/etc/hosts", f"127.0.1.1\t{name}.home {name}  # this box\n")
    assert resolver.read(Roots(str(tmp_path)), Told()) == {"hostname_resolves": True}


def test_compilers(tmp_path: Path) -> None:
    assert compilers.read(Roots(str(tmp_path), {"gcc": "12.2.0\n"}), Told()) == {
        "compilers": {"gcc": "12.2.0", "g++": None},
        "errors": [],
    }


def test_a_compiler_that_does_not_run_leaves_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gcc").write_text("#!/bin/sh\necho kaputt >&2\nexit 1\n")
    (tmp_path / "g++").write_text("#!/bin/sh\necho 13.3.0\n")
    for name in compilers.NAMES:
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert compilers.read(Roots(), Told()) == {
        "compilers": {"gcc": None, "g++": "13.3.0"},
        "errors": ["gcc: kaputt"],
    }


def test_programs_speak_english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "speak").write_text('#!/bin/sh\necho "$LC_ALL $LANGUAGE"\n')
    (tmp_path / "speak").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de:en")
    assert Roots().output("speak") == "C C"
    assert Roots().output("never-there") is None
