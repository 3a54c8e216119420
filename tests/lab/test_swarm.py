"""Boxes get files: each leaves the controller once, and whatever goes wrong on one box the others finish."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufleet.spread import TINY
from lab import state
from lab.paths import REPOSITORY
from tests.lab.support import SmallLab, small_lab, wait_for

pytestmark = pytest.mark.lab
NAMES = [f"lab-{number}" for number in range(1, 11)]
FIVE = NAMES[:5]
STORE = "/opt/gpufleet/store"
MIB = 1 << 20
SIZES = [24 * MIB, 16 * MIB, 12 * MIB, 10 * MIB, 9 * MIB, 9 * MIB, 7 * MIB, 5 * MIB, *[100_000] * 40, *[7] * 10]


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("swarm", 89, ["cpu-only"] * len(NAMES)) as fresh:
        yield fresh


@pytest.fixture(autouse=True)
def clean(lab: SmallLab) -> None:
    for name in NAMES:
        lab.sh(name, f"systemctl stop gpufleet-share; rm -rf {STORE}")


class Files:
    """Random files, in a folder that stands for the controller's store."""

    def __init__(self, root: Path, sizes: list[int]) -> None:
        self.root = root
        self.items: list[dict[str, Any]] = []
        for number, size in enumerate(sizes):
            data = os.urandom(size)
            sha256 = hashlib.sha256(data).hexdigest()
            item = {"filename": f"thing_{number}-1.0+cu130-py3-none-any.whl", "sha256": sha256, "size": size}
            self.items.append(item)
            path = self.path(item)
            path.parent.mkdir()
            path.write_bytes(data)
        self.total = sum(sizes)

    def path(self, item: dict[str, Any]) -> Path:
        return self.root / item["sha256"] / item["filename"]

    def sums(self) -> set[str]:
        return {f"{item['sha256']}  ./{item['sha256']}/{item['filename']}" for item in self.items}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("store"), SIZES)


class Run:
    """Files are being brought to boxes."""

    def __init__(self, lab: SmallLab, files: Files, names: list[str] = NAMES, **more: Any) -> None:
        found = state.load(lab.where)
        login = {"ssh_user": "root", "ssh_key": found.ssh_key, "ssh_known_hosts_file": found.known_hosts}
        boxes = {name: {"ssh_hostname": found.box(name).address, **login} for name in names}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.bringing"],
            cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdin is not None
        spec = {"boxes": boxes, "items": files.items, "store": str(files.root), **more}
        self.process.stdin.write(json.dumps(spec))
        self.process.stdin.close()
        self.said: list[dict[str, Any]] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.said += (json.loads(line) for line in iter(self.process.stdout.readline, ""))

    def end(self) -> dict[str, Any]:
        code = self.process.wait(600)
        self.reader.join(30)
        assert code == 0 and self.process.stderr is not None, (
            self.said,
            self.process.stderr and self.process.stderr.read(),
        )
        return self.said[-1]

    def lines(self, box: str) -> str:
        return "\n".join(each["says"] for each in self.said if each.get("box") == box)


def whole(lab: SmallLab, files: Files, names: list[str]) -> None:
    """Every file is there and right, and nothing else is."""
    for name in names:
        there = lab.sh(name, f"cd {STORE} && find . -type f -exec sha256sum {{}} +").splitlines()
        assert set(there) == files.sums(), name


def right_names_only(lab: SmallLab, files: Files, name: str) -> int:
    """What has its final name is whole; how many files that is."""
    there = lab.sh(name, f"cd {STORE} && find . -type f ! -name '*.part' -exec sha256sum {{}} +").splitlines()
    assert set(there) <= files.sums()
    return len(there)


def serves(lab: SmallLab, name: str) -> bool:
    return lab.sh(name, "systemctl is-active gpufleet-share || :") == "active"


def test_one_copy_leaves_the_controller_and_a_second_run_moves_nothing(lab: SmallLab, files: Files) -> None:
    run = Run(lab, files)
    done = run.end()
    assert done["failed"] == {}
    assert files.total <= done["sent"] <= files.total * 1.1, "slow machines may send a file twice, no more"
    whole(lab, files, NAMES)
    assert all(sum(done["came"][name].values()) == files.total for name in NAMES)
    assert not any(serves(lab, name) for name in NAMES), "the servers end with the run"
    assert "from other boxes" in run.lines("lab-1")
    again = Run(lab, files).end()
    assert (again["sent"], again["failed"]) == (0, {})
    assert set(map(str, again["came"].values())) == {"{}"}


@pytest.mark.large
def test_a_peer_that_is_killed_in_the_middle(lab: SmallLab, files: Files) -> None:
    run = Run(lab, files, FIVE)
    killed: list[str] = []

    def kill_one() -> bool:
        killed.extend(name for name in FIVE if serves(lab, name))
        return bool(killed)

    wait_for(kill_one)
    lab.sh(killed[0], "systemctl kill -s KILL gpufleet-share")
    assert run.end()["failed"] == {}
    whole(lab, files, FIVE)


def test_a_box_that_loses_its_power_in_the_middle(lab: SmallLab, files: Files) -> None:
    run = Run(lab, files, FIVE)
    wait_for(lambda: int(lab.sh("lab-3", f"find {STORE} -name '*.whl' 2>/dev/null | wc -l")) > 0)
    lab("kill", "lab-3")
    try:
        done = run.end()
    finally:
        lab("start", "lab-3")
    assert list(done["failed"]) == ["lab-3"]
    assert done["failed"]["lab-3"].startswith("lab-3: ") and "deploy again" in done["failed"]["lab-3"]
    whole(lab, files, [name for name in FIVE if name != "lab-3"])
    kept = right_names_only(lab, files, "lab-3")
    again = Run(lab, files, FIVE).end()
    assert again["failed"] == {} and again["sent"] <= TINY, "the others have it all"
    assert kept < len(files.items)
    whole(lab, files, FIVE)


@pytest.mark.large
def test_a_full_disk_costs_its_box_only(lab: SmallLab, files: Files) -> None:
    lab.sh("lab-4", f"mkdir -p {STORE} && mount -t tmpfs -o size=40m tmpfs {STORE}")
    try:
        done = Run(lab, files, FIVE).end()
        assert right_names_only(lab, files, "lab-4") < len(files.items)
    finally:
        lab.sh("lab-4", f"umount -l {STORE}")
    assert list(done["failed"]) == ["lab-4"]
    line = done["failed"]["lab-4"]
    assert line.startswith(f"lab-4: no space in {STORE} for thing_") and "\n" not in line
    assert line.endswith("Make room on the box, then deploy again.")
    whole(lab, files, [name for name in FIVE if name != "lab-4"])


def test_a_file_that_went_bad_on_a_disk_is_made_good(lab: SmallLab, files: Files) -> None:
    names = NAMES[:3]
    Run(lab, files, names).end()
    bad, at = files.items[0], 4_000_000
    byte = files.path(bad).read_bytes()[at] ^ 1
    damage = f"printf '\\{byte:03o}' | dd of={STORE}/{bad['sha256']}/{bad['filename']} bs=1 seek={at} conv=notrunc"
    lab.sh("lab-1", damage)
    run = Run(lab, files, names)
    done = run.end()
    assert (done["failed"], done["sent"]) == ({}, 0), "the other boxes have it"
    assert f"{bad['filename']} was damaged on this box" in run.lines("lab-1")
    whole(lab, files, names)


@pytest.mark.large
def test_a_killed_controller_goes_on_where_it_was(lab: SmallLab, tmp_path: Path) -> None:
    files = Files(tmp_path, [150 * MIB])
    run = Run(lab, files, ["lab-1"])
    size = f"stat -c %s {STORE}/*/*.part 2>/dev/null || echo 0"
    wait_for(lambda: int(lab.sh("lab-1", size)) > 10 * MIB)
    run.process.kill()
    run.process.wait()
    wait_for(lambda: "receive" not in " ".join(" ".join(each) for each in lab.commands("lab-1")))
    kept = int(lab.sh("lab-1", size))
    assert 10 * MIB < kept < files.total
    done = Run(lab, files, ["lab-1"]).end()
    assert (done["failed"], done["sent"]) == ({}, files.total - kept)
    whole(lab, files, ["lab-1"])


def test_without_peers_each_box_gets_its_copy_from_the_controller(lab: SmallLab, tmp_path: Path) -> None:
    files = Files(tmp_path, [3 * MIB, 100])
    done = Run(lab, files, NAMES[:3], peers=False).end()
    assert (done["failed"], done["sent"]) == ({}, 3 * files.total)
    whole(lab, files, NAMES[:3])


@pytest.mark.large
def test_boxes_fetch_from_outside_once(lab: SmallLab, tmp_path: Path) -> None:
    files = Files(tmp_path, [9 * MIB, 9 * MIB, 200_000, 5])
    public = lab.where.www / "outside"
    public.symlink_to(tmp_path)
    found = state.load(lab.where)
    prefix = found.urls["pypi"].removesuffix("simple/") + "outside"
    addresses = {item["sha256"]: f"{prefix}/{item['sha256']}/{item['filename']}" for item in files.items}
    try:
        done = Run(lab, files, NAMES[:4], store="/nowhere", addresses=addresses).end()
    finally:
        public.unlink()
    assert (done["failed"], done["sent"]) == ({}, 0)
    whole(lab, files, NAMES[:4])
    assert sum(came.get("outside", 0) for came in done["came"].values()) == files.total
    fetched = (lab.where.home / "http.log").read_text()
    assert [fetched.count(f"GET /outside/{item['sha256']}") for item in files.items] == [1] * len(files.items)


def test_the_server_has_no_rights_and_tells_nobody_its_token(lab: SmallLab, files: Files) -> None:
    Run(lab, files, ["lab-1"]).end()
    kit = "python3 /opt/gpufleet/kit/gpufleet-kit-*.pyz"
    told = json.loads(lab.sh("lab-1", f"echo '{{}}' | {kit} share"))
    assert json.loads(lab.sh("lab-1", f"echo '{{}}' | {kit} share")) == told
    item = files.items[-1]
    try:
        assert told["token"] not in lab.sh("lab-1", "ps axww; systemctl show gpufleet-share; journalctl -o cat")
        lab.sh("lab-1", "setpriv --reuid nobody --clear-groups cat /run/gpufleet-share.env", code=1)
        pid = lab.sh("lab-1", "systemctl show -P MainPID gpufleet-share")
        assert int(lab.sh("lab-1", f"stat -c %u /proc/{pid}")) > 1000, "a user of its own"
        assert lab.sh("lab-1", f"grep CapEff /proc/{pid}/status").split()[1] == "0" * 16
        url = f"http://127.0.0.1:{told['port']}/{{}}/{item['sha256']}/{item['filename']}"
        ask = "python3 -c \"import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).status)\" '{}'"
        assert lab.sh("lab-1", ask.format(url.format(told["token"]))) == "200"
        lab.sh("lab-1", ask.format(url.format("other")) + " 2>/dev/null", code=1)
    finally:
        lab.sh("lab-1", f"echo '{{}}' | {kit} unshare")
    assert not serves(lab, "lab-1")
