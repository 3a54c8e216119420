"""The probe as it runs on boxes, whatever is wrong with them: it says what it can, and names the rest."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet import kit
from lab import nvml, rootfs
from tests.lab.probing import (
    BOX,
    KIT,
    SCENARIO,
    driver_packages,
    faults,
    instead,
    probe,
    probe_by_script,
    said,
)
from tests.lab.support import SmallLab, small_lab, wait_for

pytestmark = pytest.mark.lab
GERMAN = "LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 LANGUAGE=de:en"


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("probe", 82, [SCENARIO]) as fresh:
        root = rootfs.root(fresh.where, BOX)
        (root / KIT.lstrip("/")).write_bytes(kit.build().data)
        yield fresh


@pytest.fixture
def root(lab: SmallLab) -> Path:
    """The box's disk, as seen from outside."""
    return rootfs.root(lab.where, BOX)


def test_a_box_that_is_well(lab: SmallLab) -> None:
    found = probe(lab, spec={"packages": ["python3", "g++"]})
    assert found["errors"] == []
    assert (found["hostname"], found["hostname_resolves"], found["virtualization"]) == (BOX, True, "systemd-nspawn")
    assert [gpu["name"] for gpu in found["gpus"]] == ["NVIDIA GeForce RTX 2080 Ti"] * 2
    assert found["links"] == {"0-1": "NV2"} and len(found["gpus"][0]["nvlinks"]) == 2
    assert found["packages"]["python3"] and found["packages"]["g++"] is None
    assert found["compilers"] == {"gcc": None, "g++": None}
    assert {disk["filesystem"] for disk in found["disks"].values()} == {"overlay"}
    # a container has neither
    assert (found["kernel_log"], found["xid"], found["secure_boot"]) == (False, [], None)


def test_a_driver_that_hangs_from_the_start(lab: SmallLab, root: Path) -> None:
    with faults(root, nvmlInit="hang"):
        found = probe(lab)
    assert said(found) == {"nvml": "no answer within 20 s (in nvmlInit)"}
    assert found["driver"] is not None and found["gpus"] == []
    assert found["hostname"] == BOX and found["disks"] and found["python"]["version"]
    wait_for(lambda: not any(KIT in word for command in lab.commands(BOX) for word in command))


def test_a_driver_that_hangs_at_the_last_question(lab: SmallLab, root: Path) -> None:
    with faults(root, nvmlDeviceGetComputeRunningProcesses="hang"):
        found = probe_by_script(lab, seconds=3)
    assert said(found) == {"nvml": "no answer within 3 s (in nvmlDeviceGetComputeRunningProcesses of GPU 0)"}
    assert len({gpu["uuid"] for gpu in found["gpus"]} - {None}) == 2
    assert (found["links"], found["p2p_write"]) == ({"0-1": "NV2"}, {"0-1": "OK"})


def test_no_python3_apt_and_packages_of_a_driver(lab: SmallLab, root: Path) -> None:
    lab.sh(BOX, "python3 -c 'import apt'", code=1)
    with driver_packages(root, lab):
        found = probe(lab)
    assert found["errors"] == []
    assert found["holds"] == ["libnvidia-compute-580"]
    assert found["nvidia_packages"] == {
        "libnvidia-compute-580": {
            "version": "580.159.03-1",
            "origin": "file:/srv/repository ./",
            "candidate": "580.173.02-1",
        }
    }


def test_an_apt_that_hangs_keeps_the_versions_and_is_ended(lab: SmallLab, root: Path) -> None:
    with driver_packages(root, lab), instead(lab, "/usr/local/bin/apt-cache", "#!/bin/sh\nsleep 3600\n"):
        found = probe(lab)
    assert said(found) == {"origins": "no answer within 5 s"}
    assert found["nvidia_packages"]["libnvidia-compute-580"]["version"] == "580.159.03-1"
    assert len(found["gpus"]) == 2
    wait_for(lambda: not any("3600" in command for command in lab.commands(BOX)))


def test_an_apt_that_fails_is_said(lab: SmallLab, root: Path) -> None:
    broken = "#!/bin/sh\necho 'E: the list of packages is broken' >&2\nexit 100\n"
    with driver_packages(root, lab), instead(lab, "/usr/local/bin/apt-cache", broken):
        found = probe(lab)
    assert said(found) == {"origins": "OSError: apt-cache: E: the list of packages is broken"}


def test_another_user_than_root_says_what_only_root_may_read(lab: SmallLab) -> None:
    found = probe(lab, user="opspw")
    assert len(found["gpus"]) == 2 and found["packages"] == {}
    assert set(said(found)) <= {"kernel_log", "iommu"}
    assert said(found)["kernel_log"].startswith("only root may read the kernel's log")


def test_full_disks(lab: SmallLab, root: Path) -> None:
    folders = ("/opt", "/tmp", "/var/tmp", "/var/cache/apt", "/run/user")
    with driver_packages(root, lab):
        lab.sh(BOX, "mkdir -p /run/user")
        for folder in folders:
            lab.sh(BOX, f"mount -t tmpfs -o size=64k full {folder}; ! dd if=/dev/zero of={folder}/full 2>/dev/null")
        try:
            found = probe(lab, spec={"packages": ["python3"]})
        finally:
            for folder in folders:
                lab.sh(BOX, f"umount {folder}")
    assert found["errors"] == []
    assert found["disks"]["/opt/gpufleet"] == {"free_mib": 0, "total_mib": 0, "mount": "/opt", "filesystem": "tmpfs"}
    assert found["disks"]["/"]["free_mib"] > 0
    assert found["packages"]["python3"] and len(found["gpus"]) == 2
    assert found["nvidia_packages"]["libnvidia-compute-580"]["candidate"] == "580.173.02-1"


def test_a_full_var_without_anything_in_it(lab: SmallLab) -> None:
    lab.sh(BOX, "mount -t tmpfs -o size=64k full /var; ! dd if=/dev/zero of=/var/full 2>/dev/null")
    try:
        found = probe(lab, spec={"packages": ["python3"]})
    finally:
        lab.sh(BOX, "umount /var")
    assert set(said(found)) == {"packages"} and "/var/lib/dpkg/status" in said(found)["packages"]
    assert found["disks"]["/var"] == {"free_mib": 0, "total_mib": 0, "mount": "/var", "filesystem": "tmpfs"}
    assert len(found["gpus"]) == 2


def test_a_german_box(lab: SmallLab, root: Path) -> None:
    # gettext goes by the locale's name: the image has apt's and systemd's German words, but no locale to go with them
    lab.sh(BOX, "cp -r /usr/lib/locale/C.utf8 /usr/lib/locale/de_DE.utf8")
    unit = root / "etc/systemd/system/gpufleet-tiny.service"
    unit.write_text("[Service]\nExecStart=/usr/bin/sleep infinity\n")
    try:
        lab.sh(BOX, "systemctl daemon-reload; systemctl start gpufleet-tiny")
        with driver_packages(root, lab):
            assert "Installiert:" in lab.sh(BOX, f"{GERMAN} apt-cache policy libnvidia-compute-580")
            german, english = probe(lab, GERMAN), probe(lab, "LC_ALL=C")
    finally:
        lab.sh(BOX, f"systemctl stop gpufleet-tiny; rm -r /usr/lib/locale/de_DE.utf8 /etc/systemd/system/{unit.name}")
    assert german["errors"] == english["errors"] == []
    assert german["nvidia_packages"]["libnvidia-compute-580"]["candidate"] == "580.173.02-1"
    assert german["instances"]["tiny"]["service"]["since"]
    moving = ("at", "clock", "memory", "disks", "shm_free_mib")
    assert [key for key in german if german[key] != english[key] and key not in moving] == []


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5])
def test_a_library_that_is_cut_off(lab: SmallLab, root: Path, part: float) -> None:
    library = root / "usr/lib/x86_64-linux-gnu" / nvml.LIBRARY
    whole = library.read_bytes()
    # a new file: the old one may be mapped
    library.unlink()
    library.write_bytes(whole[: int(len(whole) * part)])
    try:
        found = probe(lab)
    finally:
        library.unlink()
        library.write_bytes(whole)
    assert set(said(found)) == {"nvml"}
    assert found["driver"] is not None and found["driver"]["cuda"] is None and found["gpus"] == []
    assert found["hostname"] == BOX


def test_a_library_at_odds_with_the_module(lab: SmallLab, root: Path) -> None:
    with faults(root, nvmlInit=18):
        found = probe(lab)
    assert set(said(found)) == {"nvml"} and "mismatch" in said(found)["nvml"].lower()
    assert found["driver"] is not None and found["gpus"] == []


def test_a_card_that_fell_off_the_bus(lab: SmallLab, root: Path) -> None:
    lost = ("nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetPciInfo")
    with faults(root, **dict.fromkeys(lost, 15)):
        found = probe(lab)
    assert sorted(error["message"].split(":")[0] for error in found["errors"]) == sorted(lost)
    assert all("GPU is lost" in error["message"] for error in found["errors"])
    assert [gpu["compute_capability"] for gpu in found["gpus"]] == [[7, 5], [7, 5]]
    assert found["gpus"][0]["name"] is None and found["links"] == {"0-1": "NODE"}


def test_a_resolver_that_never_answers(lab: SmallLab) -> None:
    silent = "import socket,time; s=socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.53', 53)); time.sleep(600)"
    with (
        instead(lab, "/etc/hosts", "127.0.0.1 localhost\n", 0o644),
        instead(lab, "/etc/resolv.conf", "nameserver 127.0.0.53\n", 0o644),
    ):
        pid = lab.sh(BOX, f"setsid python3 -c {shlex.quote(silent)} >/dev/null 2>&1 & echo $!")
        wait_for(lambda: "127.0.0.53:53" in lab.sh(BOX, "ss -lun"))
        try:
            found = probe(lab)
        finally:
            lab.sh(BOX, f"kill {pid}")
    assert said(found) == {"resolver": f"no answer within 2 s (in looking up {BOX})"}
    assert found["hostname_resolves"] is False and len(found["gpus"]) == 2


def test_xid_events_of_a_log(lab: SmallLab, root: Path) -> None:
    line = "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    (root / "root/kernel.log").write_text(f"[    0.000000] Linux version 6.1\n[  500.000000] {line}\n")
    found = probe_by_script(lab, kernel_log="/root/kernel.log")
    assert found["kernel_log"] is True
    assert found["xid"] == [{"code": 79, "bus_id": "0000:01:00", "count": 1, "last": line}]
