"""New Xid events of an instance's cards."""

from __future__ import annotations

from typing import Any

import pytest

from hostkit import gate_xid
from hostkit.errors import Failure
from hostkit.roots import Roots

OURS = ["00000000:01:00.0"]
BEFORE = "NVRM: Xid (PCI:0000:01:00): 31, pid=7, MMU Fault\n"


@pytest.fixture
def log(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernel's log, a file."""
    path = tmp_path / "kernel.log"
    path.write_text("booting\n" + BEFORE)
    monkeypatch.setattr(gate_xid, "Roots", lambda: Roots("/", {}, str(path)))
    return path


def later(log: Any, line: str) -> None:
    before = gate_xid.read(OURS)
    with log.open("a") as file:
        file.write(line + "\n")
    gate_xid.check(before, OURS)


@pytest.mark.parametrize(
    ("line", "said", "remedy"),
    [
        ("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", "Xid 79 .*fallen off the bus", "reboot"),
        ("NVRM: Xid (PCI:0000:01:00): 31, pid=9, MMU Fault", "Xid 31 .*pid=9, MMU Fault", "journal"),
        ("NVRM: Xid (PCI:0000:01:00): 999, what", "Xid 999 .*list of Xid", "reboot"),
    ],
)
def test_a_new_event_of_our_card_is_told(log: Any, line: str, said: str, remedy: str) -> None:
    with pytest.raises(Failure, match=said) as caught:
        later(log, line)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("line", ["NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.", "usb 1-1: new device"])
def test_what_is_another_cards_is_not_ours(log: Any, line: str) -> None:
    later(log, line)


def test_without_cards_or_a_log_there_is_nothing_to_read(log: Any) -> None:
    assert gate_xid.read([]) == {}
    log.unlink()
    assert gate_xid.read(OURS) == {}
