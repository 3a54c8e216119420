"""The CUDA toolkit by a real apt, dpkg and update-alternatives: what is installed, what is refused, what stays.

The packages are small ones of NVIDIA's shape and dependencies, from signed repositories that the lab serves.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hostkit import blacklist
from lab import apt
from lab.cuda import DISTRO, KEY
from lab.rootfs import ARCHIVE_KEY
from lab.shell import run
from tests.lab.support import Done, SmallLab, deploy, small_lab

pytestmark = pytest.mark.lab
BOX = "lab-1"
CONTROL = """\
Package: {name}
Version: {version}
Architecture: amd64
Maintainer: gpufleet lab <lab@lab.invalid>
{more}Description: stand-in
"""
# What NVIDIA's cuda-toolkit-X-Y-config-common does after it is unpacked.
REGISTER = """\
#!/bin/sh
set -e
update-alternatives --install /usr/local/cuda cuda /usr/local/cuda-{version} {priority}
"""
NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release {version}'\n"
HOLDS = "apt-mark showhold | sort"
LINK = "readlink -f /usr/local/cuda"
INSTALLED = "dpkg-query -W -f '${Package} ${db:Status-Status}\\n' 'cuda*' 'libcu*' 'nvidia*' 2>/dev/null | sort || :"
OF_12_9 = ["cuda-nvcc-12-9", "cuda-toolkit-12-9", "cuda-toolkit-config-common", "libcublas-12-9"]
OF_13_0 = ["cuda-nvcc-13-0", "cuda-toolkit-13-0", "libcublas-13-0"]


class Repository:
    """A signed repository below the lab's www folder."""

    def __init__(self, lab: SmallLab, name: str, key: str) -> None:
        self.lab, self.key = lab, key
        self.folder = lab.where.www / name / DISTRO / "x86_64"
        self.folder.mkdir(parents=True)
        self.url = lab.where.url(f"{name}/{{distro}}/x86_64/")
        (self.folder / KEY).write_text(apt.public_key(lab.where, key))

    def add(self, name: str, version: str, more: str = "", files: dict[str, str] | None = None) -> None:
        tree = self.folder / ".tree"
        for path, text in {
            "DEBIAN/control": CONTROL.format(name=name, version=version, more=more),
            **(files or {}),
        }.items():
            file = tree / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o644 if path.endswith("control") else 0o755)
        run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, self.folder / f"{name}_{version}_amd64.deb"])
        shutil.rmtree(tree)

    def toolkit(self, version: str, common: str, needs: str = "") -> None:
        """cuda-toolkit-12-9 with its compiler, which registers itself, and one library."""
        dashed, priority = version.replace(".", "-"), version.replace(".", "")
        depends = f"cuda-nvcc-{dashed}, libcublas-{dashed}, cuda-toolkit-config-common (>= {common})"
        self.add(f"cuda-toolkit-{dashed}", f"{version}.1-1", f"Depends: {depends}{needs}\n")
        files = {
            f"usr/local/cuda-{version}/bin/nvcc": NVCC.format(version=version),
            "DEBIAN/postinst": REGISTER.format(version=version, priority=priority),
        }
        self.add(f"cuda-nvcc-{dashed}", f"{version}.1-1", files=files)
        self.add(f"libcublas-{dashed}", f"{version}.1-1")

    def publish(self, key: str = "") -> None:
        apt.publish(self.lab.where, self.folder, key or self.key)

    def source(self, key: str) -> str:
        """An owner's line for it, signed by a key that the box has."""
        return f"deb [signed-by={key}] {self.url.replace('{distro}', DISTRO)} ./\n"


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("apt", 87, ["dual-2080ti-nv2"]) as fresh:
        yield fresh


@pytest.fixture(scope="module")
def cuda(lab: SmallLab) -> Repository:
    found = Repository(lab, "toolkits", "cuda")
    found.toolkit("12.9", "12.9")
    found.add("cuda-toolkit-config-common", "12.9-1")
    found.add("cuda", "13.0-1", "Depends: cuda-toolkit-12-9, cuda-drivers\n")
    found.add("cuda-drivers", "610.1-1", "Depends: nvidia-driver\n")
    found.add("nvidia-driver", "610.1-1")
    found.publish()
    return found


def inventory(lab: SmallLab, folder: Path, repository: Repository, toolkit: str, **host: Any) -> Path:
    mirrors = lab.mirrors(cuda=repository.url, cuda_key=f"{repository.url}{KEY}".replace("{distro}", DISTRO))
    return lab.folder(folder, {BOX: {"host": {"toolkit": toolkit, **host}, "mirrors": mirrors}})


def refused(lab: SmallLab, done: Done, before: str) -> str:
    """The line of a box on which nothing was installed."""
    assert done.code == 1 and done.state(BOX) == "failed", done.output
    assert lab.sh(BOX, INSTALLED) == before
    return done.problem(BOX)


@contextmanager
def source(lab: SmallLab, text: str) -> Iterator[None]:
    """A repository that the owner has beside ours."""
    path = "/etc/apt/sources.list.d/owners.list"
    lab.sh(BOX, f"printf '%s' '{text}' > {path}")
    try:
        yield
    finally:
        lab.sh(BOX, f"rm {path}")


def test_a_toolkit_is_installed_held_exactly_and_kept_from_upgrades_at_night(
    lab: SmallLab, cuda: Repository, tmp_path: Path
) -> None:
    lab.sh(BOX, "apt-mark hold procps")
    folder = inventory(lab, tmp_path, cuda, "12-9")
    done = deploy(folder)
    assert done.code == 0 and done.state(BOX) == "changed", done.output
    assert lab.sh(BOX, "/usr/local/cuda-12.9/bin/nvcc").endswith("release 12.9")
    assert lab.sh(BOX, HOLDS).split() == sorted([*OF_12_9, "procps"])
    dumped = lab.sh(BOX, "apt-config dump Unattended-Upgrade::Package-Blacklist")
    assert all(f'Unattended-Upgrade::Package-Blacklist:: "{item}";' in dumped for item in blacklist.PATTERNS)
    again = deploy(folder)
    assert again.code == 0 and again.state(BOX) == "nothing to do", again.output
    assert "to do:" not in again.output and "apt-get" not in again.output


def test_a_hold_that_went_and_an_edited_list_are_named_and_put_right(
    lab: SmallLab, cuda: Repository, tmp_path: Path
) -> None:
    lab.sh(BOX, f"apt-mark unhold libcublas-12-9; sed -i s/nvidia/nvida/ {blacklist.PATH}")
    folder = inventory(lab, tmp_path, cuda, "12-9")
    dry = deploy(folder, ["--dry"])
    assert dry.code == 5 and "to do: hold libcublas-12-9\n" in dry.output, dry.output
    assert f"{blacklist.PATH} is changed" in dry.output
    assert deploy(folder).state(BOX) == "changed"
    assert "libcublas-12-9" in lab.sh(BOX, HOLDS)
    assert lab.sh(BOX, f"cat {blacklist.PATH}") == blacklist.TEXT.strip()
    assert deploy(folder).state(BOX) == "nothing to do"


def test_a_second_toolkit_renews_what_both_share_and_moves_no_link(
    lab: SmallLab, cuda: Repository, tmp_path: Path
) -> None:
    assert lab.sh(BOX, LINK) == "/usr/local/cuda-12.9"
    cuda.toolkit("13.0", "13.0")
    cuda.add("cuda-toolkit-config-common", "13.0-1")
    cuda.publish()
    folder = inventory(lab, tmp_path, cuda, "13-0")
    done = deploy(folder)
    assert done.code == 0 and done.state(BOX) == "changed", done.output
    for version in ("12.9", "13.0"):
        assert lab.sh(BOX, f"/usr/local/cuda-{version}/bin/nvcc").endswith(f"release {version}")
    assert lab.sh(BOX, "dpkg-query -W -f '${Version}' cuda-toolkit-config-common") == "13.0-1"
    assert lab.sh(BOX, HOLDS).split() == sorted([*OF_12_9, *OF_13_0, "procps"])
    assert lab.sh(BOX, LINK) == "/usr/local/cuda-12.9"
    assert deploy(folder).state(BOX) == "nothing to do"


def test_a_metapackage_is_refused_by_the_kit_itself(lab: SmallLab) -> None:
    spec = json.dumps({"packages": ["cuda"], "repository": None})
    said = lab.sh(BOX, f"echo '{spec}' | python3 /opt/gpufleet/kit/gpufleet-kit.pyz apt", code=1)
    assert json.loads(said.splitlines()[-1])["cause"] == "cuda would bring an NVIDIA driver"


@pytest.mark.parametrize(
    ("version", "needs", "cause"),
    [
        ("12.8", ", cuda-drivers", "apt would change the NVIDIA driver (cuda-drivers, nvidia-driver)"),
        ("12.6", "\nConflicts: sudo", "apt would have to remove sudo"),
    ],
)
def test_a_toolkit_that_touches_the_driver_or_removes_something(
    lab: SmallLab, cuda: Repository, tmp_path: Path, version: str, needs: str, cause: str
) -> None:
    cuda.toolkit(version, "12.6", needs)
    cuda.publish()
    before = lab.sh(BOX, INSTALLED)
    line = refused(lab, deploy(inventory(lab, tmp_path, cuda, version.replace(".", "-"))), before)
    assert cause in line and "apt-get -s install" in line
    assert lab.sh(BOX, "which sudo") == "/usr/bin/sudo"
    assert lab.sh(BOX, HOLDS).split() == sorted([*OF_12_9, *OF_13_0, "procps"])


def test_a_part_of_the_toolkit_from_another_repository(lab: SmallLab, cuda: Repository, tmp_path: Path) -> None:
    cuda.toolkit("12.5", "12.5")
    cuda.publish()
    other = Repository(lab, "other", "debian")
    other.add("cuda-nvcc-12-5", "12.5.9-1")
    other.publish()
    before = lab.sh(BOX, INSTALLED)
    folder = inventory(lab, tmp_path, cuda, "12-5")
    with source(lab, other.source(ARCHIVE_KEY)):
        line = refused(lab, deploy(folder), before)
    assert f"cuda-nvcc-12-5 12.5.9-1 would come from {other.url.replace('{distro}', DISTRO).rstrip('/')}" in line
    assert "owners.list" in line
    # a mirror of the very same packages: apt takes whichever its files name first
    mirror = Repository(lab, "mirror", "cuda")
    shutil.copytree(cuda.folder, mirror.folder, dirs_exist_ok=True)
    with source(lab, mirror.source("/etc/apt/keyrings/gpufleet-cuda.asc")):
        line = refused(lab, deploy(folder), before)
    assert "would come also from" in line and "owners.list" in line
    assert deploy(folder).state(BOX) == "changed"


def test_another_key_with_old_lists(lab: SmallLab, cuda: Repository, tmp_path: Path) -> None:
    cuda.toolkit("12.4", "12.4")
    cuda.publish(key="debian")
    before = lab.sh(BOX, INSTALLED)
    folder = inventory(lab, tmp_path, cuda, "12-4")
    try:
        line = refused(lab, deploy(folder), before)
        # apt itself only warns
        assert "previous index files will be used" in lab.sh(BOX, "apt-get -q update 2>&1")
    finally:
        cuda.publish()
    url = cuda.url.replace("{distro}", DISTRO).rstrip("/")
    assert f"apt-get update does not get the lists of {url}: " in line and "NO_PUBKEY" in line
    assert "mirrors.cuda_key_fingerprint" in line and "gpufleet-cuda.sources" in line
    assert deploy(folder).state(BOX) == "changed"


def test_a_repository_that_is_not_needed_stops_nothing_and_one_that_is_says_how_to_go_on(
    lab: SmallLab, cuda: Repository, tmp_path: Path
) -> None:
    cuda.toolkit("12.3", "12.3")
    cuda.publish()
    before = lab.sh(BOX, INSTALLED)
    folder = inventory(lab, tmp_path, cuda, "12-3")
    gone = lab.where.url("gone")
    with source(lab, f"deb {gone} stable main\n"):  # on the host that the toolkit comes from
        line = refused(lab, deploy(folder), before)
    assert f"does not get the lists of {gone}: " in line and "owners.list" in line
    with source(lab, "deb http://127.0.0.1:9/x stable main\n"):
        done = deploy(folder)
    assert done.code == 0 and done.state(BOX) == "changed", done.output
    assert "nothing to be installed comes from there" in done.output


def test_an_owner_who_wants_no_holds_has_only_his_own(lab: SmallLab, cuda: Repository, tmp_path: Path) -> None:
    folder = inventory(lab, tmp_path, cuda, "13-0", hold_packages=False)
    assert "to do: release the hold of" in deploy(folder, ["--dry"]).output
    assert deploy(folder).state(BOX) == "changed"
    assert lab.sh(BOX, HOLDS) == "procps"
    assert lab.sh(BOX, f"ls {blacklist.PATH} 2>/dev/null || :") == ""
    assert deploy(folder).state(BOX) == "nothing to do"
    assert deploy(inventory(lab, tmp_path, cuda, "13-0")).state(BOX) == "changed"
    assert set(OF_13_0) <= set(lab.sh(BOX, HOLDS).split())
