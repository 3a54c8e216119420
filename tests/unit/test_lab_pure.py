"""The parts of the lab that need neither root nor a box."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from hostkit import ranges
from lab import apt, cuda, network, nspawn, processes, state, wheelhouse
from lab.cache import once
from lab.down import is_ours
from lab.errors import LabError
from lab.paths import Settings, settings


@pytest.fixture
def where(tmp_path: Path) -> Settings:
    return settings({"GPUFLEET_LAB_HOME": str(tmp_path / "lab"), "GPUFLEET_LAB_NETWORK": "10.99.0.0/28"})


def test_settings_come_from_the_environment(where: Settings, tmp_path: Path) -> None:
    assert where.cache == tmp_path / "lab" / "cache"
    assert (where.address, where.interface) == ("10.99.0.1", "10.99.0.1/28")
    assert where.box_address("lab-4") == "10.99.0.14"


def test_a_network_that_is_full_says_so(where: Settings) -> None:
    with pytest.raises(LabError, match="no address left"):
        where.box_address("lab-5")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GPUFLEET_LAB_NETWORK", "10.99.0.7/24"),
        ("GPUFLEET_LAB_BRIDGE", "much-too-long0"),
        ("GPUFLEET_LAB_HOME", "here"),
        ("GPUFLEET_LAB_HOME", "/var"),
    ],
)
def test_settings_that_cannot_work_are_refused(variable: str, value: str) -> None:
    with pytest.raises(LabError, match=variable):
        settings({variable: value})


@pytest.mark.parametrize("name", ["lab-0", "lab-x", "box", "lab-1/../x"])
def test_only_box_names_are_boxes(where: Settings, name: str) -> None:
    with pytest.raises(LabError):
        where.box_address(name)


MOUNTINFO = r"""
22 1 0:21 / / rw - ext4 /dev/sda rw
90 22 0:50 / /var/lib/gpufleet-lab rw - tmpfs x rw
91 90 0:51 / /var/lib/gpufleet-lab/boxes/lab-1/root rw - overlay gpufleet-lab rw
92 91 0:52 / /var/lib/gpufleet-lab/boxes/lab-1/root/proc rw - proc proc rw
93 90 0:53 / /var/lib/gpufleet-lab/boxes/a\040b rw - overlay gpufleet-lab rw
94 22 0:54 / /var/lib/gpufleet-lab-other/boxes/lab-1/root rw - overlay gpufleet-lab rw
""".strip()


def test_mounts_are_listed_innermost_first_and_only_ones_own() -> None:
    home = Path("/var/lib/gpufleet-lab")
    found = processes.mounts_under(home, MOUNTINFO)
    assert found == [home / "boxes/lab-1/root/proc", home / "boxes/lab-1/root", home / "boxes/a b"]


def test_a_process_is_the_labs_only_by_its_own_directories(where: Settings) -> None:
    root = where.boxes / "lab-1" / "root"
    ours = ("/usr/bin/systemd-nspawn", "--quiet", f"--directory={root}", "--boot")
    assert nspawn.is_nspawn(ours, root) and is_ours(ours, where)
    assert not nspawn.is_nspawn(ours, where.boxes / "lab-11" / "root")
    assert not nspawn.is_nspawn(("vim", f"--directory={root}"), root)
    keeper = ("sh", "-c", nspawn.KEEPER, "sh", *ours)
    assert nspawn.is_keeper(keeper, root) and not nspawn.is_nspawn(keeper, root)
    assert not is_ours(("less", f"{where.home}-other/boxes/lab-1"), where)


def test_this_process_is_found_and_a_dead_one_is_not() -> None:
    found = processes.read(1)
    assert found is not None and found.parent == 0
    assert processes.read(2**22 + 1) is None
    assert processes.wait_gone([2**22 + 1], 0) == []


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-99", (0, 100)),
        ("bytes=900-", (900, 100)),
        ("bytes=990-5000", (990, 10)),
        ("bytes=-10", (990, 10)),
        ("bytes=0-1,5-6", None),
        ("lines=1-2", None),
    ],
)
def test_range_header(header: str | None, expected: tuple[int, int] | None) -> None:
    assert ranges.parse_range(header, 1000) == expected


@pytest.mark.parametrize("header", ["bytes=1000-", "bytes=5-3", "bytes=-0"])
def test_range_outside_the_file(header: str) -> None:
    with pytest.raises(ValueError):
        ranges.parse_range(header, 1000)


def test_index_links_are_escaped_and_hashed() -> None:
    link = wheelhouse.link("torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", "aa", "bb")
    assert 'href="torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl#sha256=aa"' in link
    assert 'data-core-metadata="sha256=bb"' in link
    assert wheelhouse.page([link]).count("<a ") == 1


def test_release_names_its_indexes_with_sums() -> None:
    text = apt.release_text("lab", {"Packages": b""}, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert "Date: Fri, 02 Jan 2026 03:04:05 GMT\n" in text
    assert " e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 Packages\n" in text


def test_fingerprint_is_the_primary_keys() -> None:
    assert apt.first_fingerprint("pub:u:255\nfpr:::::::::AB12:\nsub:u\nfpr:::::::::CD34:\n") == "AB12"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia/cu13/bin/nvcc", "usr/local/cuda-13.0/bin/nvcc"),
        ("nvvm-13.0.dist-info/License.txt", "usr/share/doc/cuda-toolkit-13-0/nvvm-13.0-License.txt"),
        ("nvidia_nvvm-13.0.88.dist-info/RECORD", None),
        ("nvidia/cu13/../../etc/passwd", None),
        ("nvidia/__init__.py", None),
    ],
)
def test_where_a_wheels_file_goes(name: str, expected: str | None) -> None:
    assert cuda.place(name) == expected


def test_a_network_in_use_is_seen(where: Settings) -> None:
    eth0 = {"ifname": "eth0", "addr_info": [{"family": "inet", "local": "10.99.0.3", "prefixlen": 24}]}
    own = {"ifname": where.bridge, "addr_info": [{"family": "inet", "local": "10.99.0.1", "prefixlen": 28}]}
    assert network.conflict(where, [eth0], []) == "eth0 has 10.99.0.3/24"
    assert network.conflict(where, [own], [{"dst": "10.99.0.0/28", "dev": where.bridge}]) is None
    assert network.conflict(where, [], [{"dst": "default", "dev": "eth0"}]) is None
    assert network.conflict(where, [], [{"dst": "10.0.0.0/8", "dev": "wg0"}]) == "there is a route to 10.0.0.0/8 by wg0"


def lab(where: Settings) -> state.Lab:
    return state.Lab(
        bridge=where.bridge, address=where.address, network=str(IPv4Network(where.network)), http={"port": 1, "pid": 2},
        ssh_key="k", known_hosts="h", urls={}, cuda_key_fingerprint="F", model={"name": "m"},
        boxes=[state.Box("lab-1", "10.99.0.11", "dual-3090-nv4", 5, 4)],
    )  # fmt: skip


def test_the_record_comes_back_as_written(where: Settings) -> None:
    where.home.mkdir()
    state.save(where, lab(where))
    assert state.load(where) == lab(where)
    assert [path.name for path in where.home.iterdir()] == ["lab.json"]
    with pytest.raises(LabError, match="no box lab-7"):
        state.load(where).box("lab-7")


@pytest.mark.parametrize("damage", ["", "{", '{"schema": 1}', '{"schema": 2, "boxes": []}', "[]"])
def test_a_damaged_record_is_an_error_with_a_remedy(where: Settings, damage: str) -> None:
    where.home.mkdir()
    state.path(where).write_text(damage)
    with pytest.raises(LabError, match="cannot be read"):
        state.load(where)


def test_no_record_means_not_up(where: Settings) -> None:
    with pytest.raises(LabError, match="not up"):
        state.load(where)


def test_an_interrupted_build_leaves_nothing_and_is_built_again(tmp_path: Path) -> None:
    def fails(directory: Path) -> None:
        (directory / "half").write_text("")
        raise LabError("no network")

    with pytest.raises(LabError):
        once(tmp_path, "thing", {"a": 1}, fails)
    assert list(tmp_path.iterdir()) == []
    made = once(tmp_path, "thing", {"a": 1}, lambda directory: (directory / "whole").mkdir())
    assert once(tmp_path, "thing", {"a": 1}, fails) == made
    assert once(tmp_path, "thing", {"a": 2}, lambda directory: None) != made
