"""A fleet nobody has looked at yet, hardware that changes, boxes that are off: on real boxes with stand-in cards."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import nvml, rootfs
from tests.command import GPUFLEET, run
from tests.lab.support import SmallLab, deploy, deploy_in_terminal, small_lab

pytestmark = pytest.mark.lab
TURING = "dual-2080ti-nv2"


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    """lab-1 has two 2080 Ti with a bridge, lab-2 two 3090; lab-3 has no GPU."""
    with small_lab("disc", 83, [TURING, "dual-3090-nv4", "cpu-only"]) as fresh:
        yield fresh


def home(lab: SmallLab, path: Path, **data: dict[str, Any]) -> Path:
    """An owner's folder nothing is known in; `data` by box name with _ for -."""
    return lab.folder(path, {name: data.get(name.replace("-", "_"), {}) for name in ("lab-1", "lab-2", "lab-3")})


def logins(lab: SmallLab, box: str) -> int:
    return int(lab.sh(box, "journalctl -o cat -t sshd | grep -c '^Accepted' || :"))


def cards(lab: SmallLab, box: str, scenario: dict[str, Any]) -> None:
    """Have the cards of a box be others from now on."""
    nvml.install(rootfs.root(lab.where, box), scenario)


def cached(folder: Path, box: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "inventory/facts/home" / f"{box}.json").read_text())
    return found


def discover(folder: Path, *limit: str) -> tuple[int, str]:
    options = [word for name in limit for word in ("--limit", name)]
    done = run(folder, "discover", "inventory/home.py", *options, program=GPUFLEET)
    return done.returncode, done.stdout


def test_the_first_run_by_a_trait(lab: SmallLab, tmp_path: Path) -> None:
    folder = home(lab, tmp_path)
    before = {name: logins(lab, name) for name in ("lab-1", "lab-2", "lab-3")}
    done = deploy(folder, ["-y", "--limit", "sm75"])
    assert done.code == 0 and done.state("lab-1") == "nothing to do", done.output
    assert "[lab-2]" not in done.output and "[lab-3]" not in done.output
    assert {name: logins(lab, name) - count for name, count in before.items()} == dict.fromkeys(before, 1)
    assert cached(folder, "lab-2")["links"] == {"0-1": "NV4"} and cached(folder, "lab-3")["gpus"] == []
    again = deploy(folder, ["-y", "--limit", "nvlink"])
    assert again.code == 0 and again.state("lab-1") == again.state("lab-2") == "nothing to do", again.output


def test_a_link_that_went_is_refused_until_it_is_discovered(lab: SmallLab, tmp_path: Path) -> None:
    folder = home(lab, tmp_path, lab_2={"host": {"toolkit": "13-0"}})
    assert discover(folder)[0] == 0
    kept = cached(folder, "lab-1")
    worn = copy.deepcopy(nvml.scenario(TURING))
    worn["links"]["0-1"] = "NV1"
    cards(lab, "lab-1", worn)
    try:
        done = deploy(folder)
        assert done.code == 3 and done.state("lab-1") == "refused", done.output
        said = done.problem("lab-1")
        assert "0-1: NV2 before, NV1 now" in said and "gpufleet discover inventory/home.py --limit" in said
        # lab-2 was to get a compiler: nothing of it was begun
        assert done.state("lab-2") == "not touched: the run was refused"
        assert lab.sh("lab-2", "ls -d /usr/local/cuda* /etc/apt/sources.list.d/gpufleet* 2>/dev/null || :") == ""
        assert cached(folder, "lab-1") == kept
        code, said = discover(folder, "lab-1")
        assert code == 0 and "lab-1: 0-1: NV2 before, NV1 now" in said, said
        done = deploy(folder, ["-y", "--limit", "lab-1", "--limit", "lab-3"])
        assert done.code == 0 and done.state("lab-1") == "nothing to do", done.output
    finally:
        cards(lab, "lab-1", nvml.scenario(TURING))


def test_a_card_that_fell_off_the_bus(lab: SmallLab, tmp_path: Path) -> None:
    folder = home(lab, tmp_path, lab_1={"rollout": {"on_refusal": "leave out"}})
    assert discover(folder)[0] == 0
    one = copy.deepcopy(nvml.scenario(TURING))
    gone = one["gpus"].pop()
    one["links"] = {}
    cards(lab, "lab-1", one)
    try:
        done = deploy(folder)
    finally:
        cards(lab, "lab-1", nvml.scenario(TURING))
    assert done.code == 1 and done.state("lab-1") == "refused", done.output
    assert f"{gone['name']}" in done.problem("lab-1") and "is gone" in done.problem("lab-1")
    assert done.state("lab-2") == done.state("lab-3") == "nothing to do"
    assert deploy(folder).code == 0


@pytest.mark.parametrize(
    ("option", "known"),
    [
        ("-y", False),
        *(pytest.param(*each, marks=pytest.mark.large) for each in (("-y", True), ("--dry", False), ("--dry", True))),
    ],
)
def test_a_box_that_is_off_stops_no_other(lab: SmallLab, tmp_path: Path, option: str, known: bool) -> None:
    folder = home(lab, tmp_path)
    if known:
        assert discover(folder)[0] == 0
    lab("kill", "lab-2")
    try:
        done = deploy(folder, [option])
        code, said = discover(folder)
    finally:
        lab("start", "lab-2")
    assert done.code == 1 and done.state("lab-2") == "failed", done.output
    assert "Could not connect" in done.problem("lab-2")
    assert done.state("lab-1") == done.state("lab-3") == "nothing to do"
    assert code == 1 and "lab-2: Could not connect" in said and "lab-1  sm75" in said, said


@pytest.mark.large
def test_a_box_that_is_off_stops_no_other_in_a_terminal(lab: SmallLab, tmp_path: Path) -> None:
    folder = home(lab, tmp_path)
    lab("kill", "lab-2")
    try:
        done, _ = deploy_in_terminal(folder, "Press enter to execute", "", options=())
    finally:
        lab("start", "lab-2")
    assert done.code == 1 and done.state("lab-2") == "failed", done.output
    assert done.state("lab-1") == done.state("lab-3") == "nothing to do" and "continue?" not in done.output


def test_one_box_at_a_time(lab: SmallLab, tmp_path: Path) -> None:
    folder = home(lab, tmp_path)
    for _ in ("a first look", "and with facts known"):
        done = deploy(folder, ["-y", "--parallel", "1"])
        assert done.code == 0, done.output
        assert {done.state(name) for name in ("lab-1", "lab-2", "lab-3")} == {"nothing to do"}


@pytest.mark.large
def test_a_hundred_boxes(tmp_path: Path) -> None:
    names = [f"lab-{number}" for number in range(1, 101)]
    with small_lab("many", 84, ["cpu-only"] * 100) as many:
        folder = many.folder(tmp_path, {name: {} for name in names})
        for options in (["-y"], ["-y"], ["--dry", "--parallel", "1"]):
            done = deploy(folder, options)
            assert done.code == 0, done.output
            assert {done.state(name) for name in names} == {"nothing to do"}
