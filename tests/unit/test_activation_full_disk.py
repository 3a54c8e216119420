"""A disk that gets full while an activation is under way: what served goes on serving, or serves again."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from hostkit import files, state
from hostkit.errors import Failure
from tests.unit.activation_box import Machine, make


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return make(tmp_path, monkeypatch)


def full_from(step: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From the write of this step on, nothing can be written any more. Returns what was tried, as it comes."""
    write, journal = files.write, state.journal
    tried: list[str] = []

    def no_room() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def refuse(path: str, data: bytes, mode: int = 0o644) -> None:
        if tried or f'"step": "{step}"'.encode() in data:
            tried.append(path)
            no_room()
        write(path, data, mode)

    def no_line(event: str, **fields: Any) -> None:
        if tried:
            no_room()
        journal(event, **fields)

    monkeypatch.setattr(files, "write", refuse)
    monkeypatch.setattr(state, "journal", no_line)
    return tried


@pytest.mark.parametrize("step", ["staged", "warming", "checking", "stopping"])
def test_full_before_the_stop_nothing_is_stopped(step: str, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = machine.stage("a: 1"), machine.stage("a: 2")
    machine.activate(old)
    asked: list[str] = []
    systemctl = machine._systemctl

    def noted(*arguments: str, allowed: bool = False) -> str:
        asked.append(arguments[0])
        return systemctl(*arguments, allowed=allowed)

    monkeypatch.setattr("hostkit.systemd.systemctl", noted)
    full_from(step, monkeypatch)
    with pytest.raises(Failure, match="No space") as caught:
        machine.activate(new)
    assert machine.runs("tiny") == old and not {"stop", "restart"} & set(asked)
    assert f"release {old} serves as before" in caught.value.remedy


@pytest.mark.parametrize("step", ["switching", "starting", "gating", "committing"])
def test_full_after_the_stop_what_served_serves_again(
    step: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its unit is that of the new release by then, or still its own: what needs no room is done."""
    unit = machine.root / "units/gpufleet-tiny.service"
    old = machine.stage("a: 1")
    machine.activate(old)
    before = unit.read_text()
    new = machine.stage("a: 2")
    # Most changes leave the unit as it is.
    (machine.root / f"instances/tiny/releases/{new}/gpufleet-tiny.service").write_text(before)
    full_from(step, monkeypatch)
    with pytest.raises(Failure, match="No space") as caught:
        machine.activate(new)
    assert machine.runs("tiny") == machine.current("tiny") == old
    assert f"release {old} serves again" in caught.value.remedy
    assert "could not be written down: [Errno 28]" in caught.value.remedy
