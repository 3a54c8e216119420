"""What dpkg and apt say: versions, holds, NVIDIA's packages and where they came from, upgrades that nobody looks at."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostkit import origins, packages, upgrades
from hostkit.roots import Roots
from tests.unit.boxes import put

STATUS = """\
Package: g++
Status: install ok installed
Architecture: amd64
Version: 4:12.2.0-3

Package: libgomp1
Status: install ok installed
Architecture: i386
Version: 1

Package: libgomp1
Status: hold ok installed
Architecture: amd64
Version: 12.2.0-14

Package: removed
Status: deinstall ok config-files
Architecture: all
Version: 2

Package: held-before-it-came
Status: hold ok not-installed
Architecture: all

Package: libnvidia-compute-580
Status: hold ok installed
Architecture: amd64
Version: 580.159.03-0ubuntu1

Package: libnvidia-compute-580
Status: install ok installed
Architecture: i386
Version: 580.159.03-0ubuntu1

Package: cuda-toolkit-13-0
Status: install ok installed
Architecture: amd64
Version: 13.0.3-1

Package: nvidia-driver-570
Status: deinstall ok config-files
Architecture: amd64
Version: 570.1

Package: xserver-xorg-video-nvidia-580
Status: install ok installed
Architecture: amd64
Version: 580.159.03-0ubuntu1
"""
POLICY = """\
libnvidia-compute-580:
  Installed: 580.159.03-0ubuntu1
  Candidate: 580.173.02-0ubuntu1
  Version table:
     580.173.02-0ubuntu1 500
        500 https://cuda.example/ubuntu2404/x86_64  Packages
 *** 580.159.03-0ubuntu1 100
        500 http://mirror.example/ubuntu noble-updates/restricted amd64 Packages
        500 http://mirror.example/ubuntu noble-security/restricted amd64 Packages
        100 /var/lib/dpkg/status
cuda-toolkit-13-0:
  Installed: 13.0.3-1
  Candidate: (none)
  Package pin: 13.0.3-1
  Version table:
     13.1.0-1 -1
         -1 https://cuda.example/ubuntu2404/x86_64  Packages
 *** 13.0.3-1 100
        100 /var/lib/dpkg/status
"""
DUMP = """\
APT "";
APT::Periodic "";
APT::Periodic::Update-Package-Lists "1";
APT::Periodic::Unattended-Upgrade "{periodic}";
Unattended-Upgrade::Package-Blacklist "";
Unattended-Upgrade::Package-Blacklist:: "nvidia";
Unattended-Upgrade::Package-Blacklist:: "linux-image-.*";
Unattended-Upgrade::DevRelease "auto";
"""


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(packages, "_ARCHITECTURE", "amd64")
    put(tmp_path, packages.STATUS, STATUS)
    return tmp_path


def test_packages_count_when_installed_for_this_architecture(box: Path) -> None:
    found = packages.read(Roots(str(box)), ["g++", "libgomp1", "removed", "never-there"])["packages"]
    assert found == {"g++": "4:12.2.0-3", "libgomp1": "12.2.0-14", "removed": None, "never-there": None}


def test_holds_and_nvidias_packages_without_being_asked(box: Path) -> None:
    found = packages.read(Roots(str(box)), [])
    assert found["holds"] == ["libgomp1", "libnvidia-compute-580"]
    assert found["nvidia_packages"] == {
        "libnvidia-compute-580": {"version": "580.159.03-0ubuntu1", "origin": None, "candidate": None},
        "cuda-toolkit-13-0": {"version": "13.0.3-1", "origin": None, "candidate": None},
    }


def test_a_box_without_dpkg(tmp_path: Path) -> None:
    roots = Roots(str(tmp_path))
    assert packages.read(roots, []) == {"packages": {}, "holds": [], "nvidia_packages": {}}
    assert origins.read(roots) == {"origins": {}}
    with pytest.raises(FileNotFoundError):
        packages.read(roots, ["g++"])


def test_origin_of_what_is_installed_and_the_candidate(box: Path) -> None:
    found = origins.read(Roots(str(box), {"apt-cache": POLICY}))["origins"]
    assert found == {
        "libnvidia-compute-580": {
            "origin": "http://mirror.example/ubuntu noble-updates/restricted",
            "candidate": "580.173.02-0ubuntu1",
        },
        "cuda-toolkit-13-0": {"origin": None, "candidate": None},
    }


def test_apt_cache_is_left_alone_without_anything_of_nvidias(box: Path) -> None:
    put(box, packages.STATUS, STATUS.split("Package: libnvidia", 1)[0])

    class NoPrograms(Roots):
        def output(self, *arguments: str) -> str | None:
            raise AssertionError(f"{arguments[0]} was called")

    assert origins.read(NoPrograms(str(box))) == {"origins": {}}
    assert upgrades.read(NoPrograms(str(box))) == {"unattended_upgrades": {"enabled": False, "blacklist": []}}


@pytest.mark.parametrize(
    ("periodic", "more", "timer", "enabled"),
    [
        ("1", "", "wanted", True),
        ("always", "", "wanted", True),
        ("0", "", "wanted", False),
        ("1", 'APT::Periodic::Enable "0";', "wanted", False),
        ("1", "", "masked", False),
        ("1", "", "disabled", False),
    ],
)
def test_upgrades_that_nobody_looks_at(tmp_path: Path, periodic: str, more: str, timer: str, enabled: bool) -> None:
    put(tmp_path, upgrades.PROGRAM, "")
    if timer != "disabled":
        put(tmp_path, upgrades.TIMER, "")
    if timer == "masked":
        (tmp_path / "etc/systemd/system/apt-daily-upgrade.timer").symlink_to("/dev/null")
    roots = Roots(str(tmp_path), {"apt-config": DUMP.format(periodic=periodic) + more})
    assert upgrades.read(roots) == {
        "unattended_upgrades": {"enabled": enabled, "blacklist": ["nvidia", "linux-image-.*"]}
    }
