"""What values of a box were before gpufleet set them, and that they are put back, and nobody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostkit import host_before
from hostkit.roots import Roots
from tests.unit.boxes import put
from tests.unit.test_host_verb import Box

NAME = os.uname().nodename


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(tmp_path, monkeypatch)


def base(box: Box) -> Roots:
    """Where the values of the box are; its books lie below the same folder only for the tests of the probe."""
    return Roots(str(box.base))


def undo(box: Box, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    known = host_before.read(Roots())
    monkeypatch.setattr(host_before, "read", lambda roots: known)
    return host_before.undo(base(box))


def test_each_value_is_put_back(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = box.text("/etc/hosts")
    limits = {"GPU-a": 200, "GPU-b": 210}
    box.apply(persistence_mode=True, power_limit=limits, governor="performance", swappiness=10, hosts_entry=True)
    assert box.cards.milliwatts["GPU-a"] == 200_000 and NAME in box.text("/etc/hosts")
    assert undo(box, monkeypatch) == []
    assert box.text("/proc/sys/vm/swappiness") == "60\n" and box.text("/etc/hosts") == hosts
    assert box.cards.milliwatts == {"GPU-a": 250_000, "GPU-b": 250_000}
    assert box.cards.mode == {"GPU-a": 0, "GPU-b": 0}
    assert host_before.changes(base(box)) == []


def test_what_was_changed_since_stays(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.apply(swappiness=10, overcommit_memory=1)
    put(box.base, "/proc/sys/vm/swappiness", "33\n")
    undo(box, monkeypatch)
    assert box.text("/proc/sys/vm/swappiness") == "33\n"
    assert box.text("/proc/sys/vm/overcommit_memory") == "0\n"


def test_another_wish_keeps_what_it_was_at_first(box: Box) -> None:
    box.apply(swappiness=10)
    box.apply(swappiness=20)
    assert host_before.read(Roots())["swappiness"] == {"was": 60, "set": 20}
    put(box.base, "/proc/sys/vm/swappiness", "60\n")  # a boot
    box.apply(swappiness=20)
    assert host_before.read(Roots())["swappiness"] == {"was": 60, "set": 20}
    put(box.base, "/proc/sys/vm/swappiness", "40\n")  # its owner
    box.apply(swappiness=20)
    assert host_before.read(Roots())["swappiness"] == {"was": 40, "set": 20}


def test_a_line_that_the_owner_wrote_is_not_taken_away(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    put(box.base, "/etc/hosts", f"127.0.1.1\t{NAME}\n")
    box.apply(hosts_entry=True)
    undo(box, monkeypatch)
    assert box.text("/etc/hosts") == f"127.0.1.1\t{NAME}\n"


def test_what_the_box_refuses_is_told(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.apply(swappiness=10)
    box.read_only("/proc/sys/vm/swappiness")
    (line,) = undo(box, monkeypatch)
    assert line.startswith("vm.swappiness stays as it is until the next boot: /proc/sys is read-only")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"swappiness": 3}', '{"swappiness": {"was": 1}}'])
def test_a_damaged_record_puts_nothing_back(box: Box, text: str) -> None:
    path = Path(host_before.path())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert host_before.changes(Roots()) == []
