"""What an install would do: never a driver, nothing removed, a toolkit from one repository only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpufleet import toolkit
from hostkit import apt_names, apt_simulation, apt_sources, blacklist
from hostkit.errors import Failure

CUDA = "https://192.0.2.1/cuda/debian12/x86_64/"
POLICY = """\
cuda-toolkit-13-0:
  Installed: (none)
  Candidate: 13.0.2-1
  Version table:
     13.0.2-1 500
        500 http://192.0.2.1/cuda/debian12/x86_64  Packages
cuda-common:
  Installed: 12.9-1
  Candidate: 13.0
  Version table:
     13.0 500 (phased 20%)
        500 http://192.0.2.1/cuda/debian12/x86_64  Packages
     13.0 500
       1001 file:/var/cuda-repo ./ Packages
 *** 12.9-1 100
        100 /var/lib/dpkg/status
libc6:i386:
  Installed: 2.36-9
  Candidate: 2.36-10
  Version table:
     2.36-10 500
        500 http://192.0.2.7/debian bookworm/main i386 Packages
 *** 2.36-9 100
        100 /var/lib/dpkg/status
"""
DRIVERS = [
    "nvidia-driver-580", "nvidia-open", "nvidia-dkms-580", "libnvidia-compute-580", "cuda-drivers", "cuda-drivers-580",
    "cuda-compat-13-0", "libcuda1", "libnvcuvid1", "libegl-nvidia0", "libxnvctrl0", "xserver-xorg-video-nvidia-580",
    "firmware-nvidia-gsp", "linux-image-6.1.0-41-amd64", "linux-modules-nvidia-580-generic", "nvidia-fs-dkms",
    "nvidia-driver-pinning-580", "linux-headers-amd64",
]  # fmt: skip
TOOLKITS = [
    "cuda-toolkit-13-0", "cuda-nvcc-12-9", "cuda-driver-dev-13-0", "cuda-nvml-dev-13-0", "libcublas-dev-13-0",
    "libcusolver-13-0", "libnpp-13-0", "libnppc11", "libnvjitlink-13-0", "libnvvm-13-0", "libnvptxcompiler-13-0",
    "nsight-compute-2025.3.1", "gds-tools-13-0", "nvidia-cuda-toolkit", "nvidia-cuda-dev", "libcudart11.0",
]  # fmt: skip
NEITHER = [
    "libcurl4", "libcups2", "libnvme1", "libnvpair3linux", "nvi", "linux-libc-dev", "linux-base", "g++", "curl",
    "libnvidia-container1", "nvidia-container-toolkit", "libcue2", "libnpth0",
]  # fmt: skip


@pytest.fixture(autouse=True)
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt_sources, "LIST", str(tmp_path / "sources.list"))
    monkeypatch.setattr(apt_sources, "SOURCES", str(tmp_path))
    (tmp_path / "local.list").write_text("deb [signed-by=/x] file:/var/cuda-repo ./\n")


@pytest.mark.parametrize(
    ("names", "driver", "of_toolkit"), [(DRIVERS, True, False), (TOOLKITS, False, True), (NEITHER, False, False)]
)
def test_drivers_toolkits_and_what_only_sounds_like_it(names: list[str], driver: bool, of_toolkit: bool) -> None:
    assert {name: bool(apt_names.DRIVER.match(name)) for name in names} == dict.fromkeys(names, driver)
    assert {name: bool(apt_names.TOOLKIT.match(name)) for name in names} == dict.fromkeys(names, of_toolkit)


def test_the_core_means_the_same_names() -> None:
    assert toolkit.TOOLKIT.pattern == apt_names.TOOLKIT.pattern
    assert toolkit.METAPACKAGE.pattern == apt_names.METAPACKAGE.pattern


@pytest.mark.parametrize(
    "name",
    [
        "cuda",
        "cuda-13-0",
        "cuda-runtime-12-9",
        "cuda-drivers",
        "cuda-drivers-580",
        "nvidia-driver-580",
        "cuda-demo-suite-12-9",
    ],
)
def test_a_metapackage_that_brings_a_driver_is_not_asked_for(name: str) -> None:
    with pytest.raises(Failure, match=f"{name} would bring an NVIDIA driver"):
        apt_simulation.refuse_requests(["g++", name])
    apt_simulation.refuse_requests(["g++", "cuda-toolkit-13-0", "cuda-nvcc-13-0"])


def test_steps_of_a_simulation() -> None:
    printed = (
        "Reading package lists...\nRemv old [1.0] [new:amd64 ]\n"
        "Inst libc6:i386 [2.36-9] (2.36-10 Debian:12.5/stable [i386]) []\n"
        "Inst cuda-toolkit-13-0 (13.0.2-1 NVIDIA CUDA:192.0.2.1 [amd64])\nConf cuda-toolkit-13-0 (13.0.2-1 x [amd64])\n"
    )
    assert apt_simulation.steps(printed) == [
        ("old", "1.0", None),
        ("libc6:i386", "2.36-9", "2.36-10"),
        ("cuda-toolkit-13-0", None, "13.0.2-1"),
    ]


@pytest.mark.parametrize("line", ["Inst nvidia-driver-590 (590 x [amd64])", "Remv libnvidia-compute-580 [580]"])
def test_the_driver_is_never_changed(line: str) -> None:
    apt_simulation.refuse_changes(apt_simulation.steps("Inst cuda-toolkit-13-0 (13.0 x [amd64])\n"))
    with pytest.raises(Failure, match="NVIDIA driver"):
        apt_simulation.refuse_changes(apt_simulation.steps(f"Inst cuda-toolkit-13-0 (13.0 x [amd64])\n{line}\n"))


def test_nothing_is_removed() -> None:
    with pytest.raises(Failure, match="remove my-tool"):
        apt_simulation.refuse_changes(apt_simulation.steps("Remv my-tool [1]\nInst cuda-toolkit-13-0 (13.0 x [amd64])"))


def test_sources_by_version_two_packages_of_one_number_included() -> None:
    assert apt_simulation.sources(POLICY) == {
        "cuda-toolkit-13-0": {"13.0.2-1": ["http://192.0.2.1/cuda/debian12/x86_64"]},
        "cuda-common": {"13.0": ["http://192.0.2.1/cuda/debian12/x86_64", "file:/var/cuda-repo"], "12.9-1": []},
        "libc6:i386": {"2.36-10": ["http://192.0.2.7/debian"], "2.36-9": []},
    }


def of_toolkit(*lines: str, repository: str | None = CUDA) -> list[str]:
    return apt_simulation.of_toolkit(
        apt_simulation.steps("\n".join(f"Inst {line} x [amd64])" for line in lines)),
        apt_simulation.sources(POLICY),
        repository,
    )


def test_the_toolkits_packages_are_those_of_the_repository() -> None:
    assert of_toolkit("cuda-toolkit-13-0 (13.0.2-1", "libc6:i386 [2.36-9] (2.36-10") == ["cuda-toolkit-13-0"]


@pytest.mark.parametrize(
    ("line", "repository", "cause"),
    [
        ("cuda-common [12.9-1] (13.0", CUDA, r"cuda-common 13\.0 would come also from file:/var/cuda-repo"),
        ("cuda-nvcc-13-0 (1", CUDA, "from no source that apt-cache policy knows"),
        ("cuda-toolkit-13-0 (13.0.2-1", "https://192.0.2.8/cuda/", "from http://192.0.2.1/cuda.*, not from the CUDA"),
        ("cuda-toolkit-13-0 (13.0.2-1", None, "not from the CUDA repository"),
    ],
)
def test_origins_are_not_mixed(line: str, repository: str | None, cause: str) -> None:
    with pytest.raises(Failure, match=cause) as said:
        of_toolkit(line, repository=repository)
    assert ("local.list" in said.value.remedy) == ("cuda-repo" in cause)


def test_unattended_upgrades_is_kept_off_the_same() -> None:
    kept = {name for name in DRIVERS + TOOLKITS + NEITHER if any(re.match(item, name) for item in blacklist.PATTERNS)}
    assert kept == set(DRIVERS + TOOLKITS)
