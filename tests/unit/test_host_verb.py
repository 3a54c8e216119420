"""The kit's verb `host`: values of the box are set, read back and kept for the next boot."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpufleet import host as core
from hostkit import files, host, host_state, host_values
from hostkit.roots import Roots
from tests.unit.boxes import FakeBox, put

NAME = os.uname().nodename
GOVERNORS = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"


class Cards:
    """NVML of two cards; one in `deaf` does what it likes."""

    def __init__(self) -> None:
        self.mode = {"GPU-a": 0, "GPU-b": 0}
        self.milliwatts = {"GPU-a": 250_000, "GPU-b": 250_000}
        self.deaf: set[str] = set()
        self.asked: list[str] = []

    def module(self) -> Any:
        uuids = sorted(self.mode)
        return SimpleNamespace(
            nvmlInit=lambda: None,
            nvmlDeviceGetCount=lambda: len(uuids),
            nvmlDeviceGetHandleByIndex=lambda index: uuids[index],
            nvmlDeviceGetUUID=lambda handle: handle,
            nvmlDeviceGetPersistenceMode=lambda handle: self.mode[handle],
            nvmlDeviceGetPowerManagementLimit=lambda handle: self.milliwatts[handle],
            nvmlDeviceSetPersistenceMode=self.set_mode,
            nvmlDeviceSetPowerManagementLimit=self.set_limit,
        )

    def set_mode(self, handle: str, mode: int) -> None:
        self.asked.append(f"mode {handle}")
        self.mode[handle] = mode

    def set_limit(self, handle: str, milliwatts: int) -> None:
        self.asked.append(f"limit {handle}")
        if not self.mode[handle]:
            raise RuntimeError("persistence mode first")
        if handle not in self.deaf:
            self.milliwatts[handle] = milliwatts


class Box(FakeBox):
    """A box with two cores, kernel values, a hosts file and cards."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        self.monkeypatch = monkeypatch
        self.base = root / "base"
        self.cards = Cards()
        monkeypatch.setitem(sys.modules, "pynvml", self.cards.module())
        put(self.base, "/proc/sys/vm/swappiness", "60\n")
        put(self.base, "/proc/sys/vm/overcommit_memory", "0\n")
        put(self.base, "/etc/hosts", "127.0.0.1 localhost\n")
        for core_number in range(2):
            put(self.base, GOVERNORS.format(core_number), "powersave\n")
            folder = os.path.dirname(GOVERNORS.format(core_number))
            put(self.base, folder + "/scaling_available_governors", "performance powersave\n")

    def text(self, path: str) -> str:
        return (self.base / path.lstrip("/")).read_text()

    def apply(self, **spec: Any) -> dict[str, Any]:
        self.asked.clear()
        return host.run(spec, Roots(str(self.base)))

    def told(self) -> dict[str, Any]:
        """What the probe would tell of it."""
        found: dict[str, Any] = host_state.read(Roots())["host"]
        return found

    def read_only(self, path: str) -> None:
        """As in a container; root may write to everything else."""
        real = host_values.write_in_place

        def write(roots: Roots, at: str, text: str) -> None:
            if at == path:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), at)
            real(roots, at, text)

        self.monkeypatch.setattr(host_values, "write_in_place", write)


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(tmp_path, monkeypatch)


def test_everything_is_set_and_read_back(box: Box) -> None:
    limits = {"GPU-a": 200, "GPU-b": 210}
    answer = box.apply(
        persistence_mode=True,
        power_limit=limits,
        governor="performance",
        overcommit_memory=1,
        swappiness=10,
        hosts_entry=True,
    )
    assert answer["failed"] == []
    assert answer["applied"]["power_limit.GPU-b"] == 210 and len(answer["applied"]) == 8
    assert answer["drift"][:2] == [
        f"{NAME} in /etc/hosts was missing, a line is wanted",
        "vm.overcommit_memory was 0, 1 is wanted",
    ]
    assert "the power limit of GPU-a was 250 W, 200 W is wanted" in answer["drift"]
    assert box.cards.milliwatts == {"GPU-a": 200_000, "GPU-b": 210_000}
    # without persistence mode the driver would forget a limit at once
    assert box.cards.asked == ["mode GPU-a", "mode GPU-b", "limit GPU-a", "limit GPU-b"]
    assert [box.text(GOVERNORS.format(number)) for number in range(2)] == ["performance\n"] * 2
    assert (box.text("/proc/sys/vm/swappiness"), box.text("/proc/sys/vm/overcommit_memory")) == ("10\n", "1\n")
    assert box.text("/etc/hosts") == f"127.0.0.1 localhost\n127.0.1.1\t{NAME}\n"
    (line,) = (box.root / "state/journal.jsonl").read_text().splitlines()
    assert json.loads(line)["event"] == "host-settings"


def test_what_is_as_wanted_is_not_written_again(box: Box) -> None:
    wanted = {"swappiness": 60, "power_limit": {"GPU-a": 250}}
    assert box.apply(**wanted)["drift"] == []
    assert box.asked == ["enable", "daemon-reload"] and box.cards.asked == []
    enabled(box)
    assert box.apply(**wanted) == {"applied": {"swappiness": 60, "power_limit.GPU-a": 250}, "drift": [], "failed": []}
    assert box.asked == [] and not (box.root / "state/journal.jsonl").exists()


def enabled(box: Box) -> None:
    """What `systemctl enable` does."""
    wants = box.root / "units/multi-user.target.wants"
    wants.mkdir()
    (wants / host_state.UNIT).symlink_to(f"../{host_state.UNIT}")


def test_the_unit_applies_the_same_file_at_each_boot_and_the_probe_knows_it(box: Box) -> None:
    spec = {"swappiness": 10, "power_limit": {"GPU-a": 250}, "hosts_entry": True}
    assert box.told() == {"settings": None, "unit": "missing", "refused": {}}
    box.apply(**spec)
    assert box.told()["unit"] == "changed"  # as long as it is not enabled
    enabled(box)
    of_boot = {key: value for key, value in spec.items() if key != "hosts_entry"}
    assert box.told() == {"settings": core.digest(of_boot), "unit": "current", "refused": {}}
    assert json.loads(Path(host_state.spec_path()).read_text()) == of_boot
    unit = (box.root / "units" / host_state.UNIT).read_text()
    assert f"ExecStart=python3 -IS /opt/gpufleet/kit/gpufleet-kit.pyz host {files.STATE}/host.json\n" in unit
    put(box.base, "/proc/sys/vm/swappiness", "60\n")  # a boot
    again = host.run(json.loads(Path(host_state.spec_path()).read_text()), Roots(str(box.base)))
    assert again["drift"] == ["vm.swappiness was 60, 10 is wanted"] and box.text("/proc/sys/vm/swappiness") == "10\n"


def test_nothing_for_the_boot_leaves_no_unit(box: Box) -> None:
    box.apply(hosts_entry=True)
    assert box.asked == [] and box.told() == {"settings": None, "unit": "missing", "refused": {}}
    box.apply(swappiness=10)
    box.apply(hosts_entry=True)
    assert box.asked == ["disable", "daemon-reload"]
    assert box.told() == {"settings": None, "unit": "missing", "refused": {}}
    assert box.text("/proc/sys/vm/swappiness") == "10\n"


def test_a_container_says_so_plainly_and_the_rest_is_set(box: Box) -> None:
    box.read_only("/proc/sys/vm/swappiness")
    answer = box.apply(swappiness=10, overcommit_memory=1, hosts_entry=True)
    assert answer["failed"] == [f"swappiness: {host_values.READ_ONLY}"]
    assert set(answer["applied"]) == {"overcommit_memory", "hosts_entry"}
    assert box.told()["refused"] == {"swappiness": {"wanted": 10, "why": host_values.READ_ONLY}}


def test_what_was_refused_is_forgotten_when_it_is_taken(box: Box) -> None:
    box.cards.deaf.add("GPU-a")
    box.cards.mode["GPU-a"] = 1
    answer = box.apply(power_limit={"GPU-a": 200})
    assert answer["failed"] == ["power_limit.GPU-a: it is 250 after 200 was written"]
    assert box.told()["refused"]["power_limit.GPU-a"]["wanted"] == 200
    box.cards.deaf.clear()
    assert box.apply(power_limit={"GPU-a": 200})["failed"] == []
    assert box.told()["refused"] == {}


def test_a_name_that_could_not_be_written_is_remembered_over_a_boot(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    real = files.write

    def write(path: str, data: bytes, mode: int = 0o644) -> None:
        if path.endswith("/etc/hosts"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        real(path, data, mode)

    monkeypatch.setattr(files, "write", write)
    answer = box.apply(hosts_entry=True, swappiness=60)
    assert answer["failed"] == [
        "hosts_entry: /etc/hosts is mounted into this container: add the name where that is made"
    ]
    box.apply(swappiness=60)
    assert set(box.told()["refused"]) == {"hosts_entry"}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"power_limit": {"GPU-z": 200}}, "power_limit.GPU-z: there is no such card, or it does not answer"),
        ({"power_limit": {"GPU-a": 200}}, "power_limit.GPU-a: the driver refuses it (persistence mode first)"),
        ({"governor": "schedutil"}, "governor: this processor's driver has only performance, powersave"),
    ],
)
def test_what_cannot_be_had_names_its_reason(box: Box, spec: dict[str, Any], why: str) -> None:
    assert box.apply(**spec)["failed"] == [why]


def test_without_a_driver_and_in_a_virtual_machine(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> None:
        raise RuntimeError("Driver Not Loaded")

    monkeypatch.setattr(sys.modules["pynvml"], "nvmlInit", gone)
    for number in range(2):
        (box.base / GOVERNORS.format(number).lstrip("/")).unlink()
    answer = box.apply(persistence_mode=True, governor="performance")
    assert [line.split(":")[0] for line in answer["failed"]] == ["governor", "persistence_mode"]
    assert "Driver Not Loaded" in answer["failed"][1] and "virtual machines" in answer["failed"][0]
    assert answer["drift"] == []


@pytest.mark.parametrize("text", ["", "127.0.0.1 localhost", f"# {NAME}\n127.0.0.1 localhost # {NAME}\n"])
def test_the_name_gets_a_line_of_its_own(box: Box, text: str) -> None:
    put(box.base, "/etc/hosts", text)
    (box.base / "etc/hosts").chmod(0o640)
    box.apply(hosts_entry=True)
    assert box.text("/etc/hosts").splitlines() == [*text.splitlines(), f"127.0.1.1\t{NAME}"]
    assert (box.base / "etc/hosts").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("text", [f"10.0.0.5 {NAME}\n", f"127.0.1.1 {NAME}.lan {NAME}\n"])
def test_a_line_that_has_the_name_is_left(box: Box, text: str) -> None:
    put(box.base, "/etc/hosts", text)
    assert box.apply(hosts_entry=True)["drift"] == []
    assert box.text("/etc/hosts") == text
