"""The probe as it runs on boxes, whatever is wrong with them: it says what it can, and names the rest."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpufleet import facts, kit
from lab import nvml, rootfs, state
from tests.lab.support import SmallLab, small_lab, wait_for

pytestmark = pytest.mark.lab
BOX = "lab-1"
SCENARIO = "dual-2080ti-nv2"
KIT = "/srv/kit.pyz"
GERMAN = "LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 LANGUAGE=de:en"
# the probe through its functions, where a test wants another limit than NVML's 20 s or another kernel log
SCRIPT = """
import json, sys
sys.path.insert(0, "{kit}")
from hostkit import probe
from hostkit.roots import Roots
print(json.dumps({{"event": "result", **probe.run({spec}, Roots(**{roots}), nvml_seconds={seconds})}}))
"""
PACKAGE = """\
Package: {name}
Status: {status}
Priority: optional
Section: libs
Maintainer: nobody <nobody@example.org>
Architecture: amd64
Version: {version}
Filename: ./{name}_{version}_amd64.deb
Size: 1000
SHA256: {sha256}
Description: made up
"""


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


def probe(lab: SmallLab, environment: str = "", user: str = "root", spec: Any = None) -> dict[str, Any]:
    """The facts, as the kit's command prints them; always valid."""
    return answer(ssh(lab, f"env {environment} python3 {KIT} probe", json.dumps(spec or {}), user))


def probe_by_script(lab: SmallLab, seconds: float = 20, **roots: str) -> dict[str, Any]:
    script = SCRIPT.format(kit=KIT, spec={}, roots=roots, seconds=seconds)
    return answer(ssh(lab, "python3 -", script))


def ssh(lab: SmallLab, command: str, given: str, user: str = "root") -> str:
    """As a deploy comes to the box: what nsenter starts may do more than a container's root."""
    known = state.load(lab.where)
    options = ["-i", known.ssh_key, "-o", f"UserKnownHostsFile={known.known_hosts}", "-o", "BatchMode=yes"]
    call = ["ssh", *options, f"{user}@{known.box(BOX).address}", command]
    return subprocess.run(call, input=given, capture_output=True, text=True, check=True, timeout=120).stdout


def answer(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])["facts"]
    assert facts.problems(found) == []
    return found


def said(found: dict[str, Any]) -> dict[str, str]:
    return {error["source"]: error["message"] for error in found["errors"]}


@contextmanager
def faults(root: Path, **codes: Any) -> Iterator[None]:
    """The stand-in's functions that fail while the block runs."""
    text = root / "etc/gpufleet-lab/nvml.conf"
    whole = text.read_text()
    text.write_text(nvml.conf({**nvml.scenario(SCENARIO), "faults": codes}))
    try:
        yield
    finally:
        text.write_text(whole)


@contextmanager
def instead(lab: SmallLab, path: str, text: str, mode: int = 0o755) -> Iterator[None]:
    """Another file at this path of the box while the block runs; a link there is kept."""
    file = rootfs.root(lab.where, BOX) / path.lstrip("/")
    lab.sh(BOX, f"if [ -e {path} ]; then mv {path} {path}.kept; fi")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    try:
        yield
    finally:
        lab.sh(BOX, f"rm {path}; if [ -e {path}.kept ]; then mv {path}.kept {path}; fi")


@contextmanager
def driver_packages(root: Path, lab: SmallLab) -> Iterator[None]:
    """A driver's library from a repository that has a newer one by now, held; and a foreign package of a .run age."""
    status, repository = root / "var/lib/dpkg/status", root / "srv/repository"
    name, before = "libnvidia-compute-580", status.read_text()
    repository.mkdir(parents=True, exist_ok=True)
    package = PACKAGE.format(name=name, status="hold ok installed", version="580.159.03-1", sha256="0" * 64)
    offered = [
        PACKAGE.format(name=name, status="", version=f"580.{v}-1", sha256=v[0] * 64) for v in ("159.03", "173.02")
    ]
    (repository / "Packages").write_text("\n".join(text.replace("Status: \n", "") for text in offered))
    with instead(lab, "/etc/apt/sources.list.d/made-up.list", "deb [trusted=yes] file:/srv/repository ./\n", 0o644):
        status.write_text(f"{before.rstrip()}\n\n{package}")
        lab.sh(BOX, "apt-get update -o Dir::Etc::sourcelist=sources.list.d/made-up.list -o Dir::Etc::sourceparts=-")
        try:
            yield
        finally:
            status.write_text(before)
            lab.sh(BOX, "rm -rf /srv/repository /var/lib/apt/lists/*_srv_repository_*")


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
    assert found["disks"]["/opt/gpufleet"] == {"free_mib": 0, "total_mib": 0, "filesystem": "tmpfs"}
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
    assert found["disks"]["/var"] == {"free_mib": 0, "total_mib": 0, "filesystem": "tmpfs"}
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
