"""Asking systemd: one that is busy is asked again; one that is asked to change something is not."""

from __future__ import annotations

import pytest

from hostkit import shell, systemd
from hostkit.errors import Failure


def said(monkeypatch: pytest.MonkeyPatch, failures: int) -> list[list[str]]:
    """The calls that are made; the first `failures` time out, as those to a busy systemd do."""
    calls: list[list[str]] = []

    def run(arguments: list[str], **_: object) -> str:
        calls.append(list(arguments))
        if len(calls) <= failures:
            raise shell.Ended(arguments, 1, "Failed to get properties: Connection timed out")
        return (
            "ActiveState=active\nSubState=running\nMainPID=7\nJob=12\nNRestarts=2\nInvocationID=ab12\n"
            "ControlGroup=/system.slice/x.service\nExecMainStartTimestampMonotonic=1500000\n"
        )

    monkeypatch.setattr(shell, "run", run)
    monkeypatch.setattr(systemd, "TRY_SECONDS", 0)
    return calls


def test_a_busy_systemd_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = said(monkeypatch, 3)
    assert systemd.show("x.service") == {
        "active": "active",
        "sub": "running",
        "pid": 7,
        "job": True,
        "restarts": 2,
        "invocation": "ab12",
        "group": "/system.slice/x.service",
        "since": 1.5,
    }
    assert len(calls) == 4


def test_of_a_unit_that_is_not_known_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "run", lambda *_, **__: "ActiveState=inactive\nInvocationID=\nControlGroup=\n")
    found = systemd.show("x.service")
    assert (found["active"], found["pid"], found["restarts"], found["since"]) == ("inactive", None, 0, 0.0)


def test_one_that_never_answers_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, 100)
    with pytest.raises(Failure, match="timed out"):
        systemd.show("x.service")


def test_a_change_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = said(monkeypatch, 1)
    with pytest.raises(Failure):
        systemd.reload()
    assert len(calls) == 1


def test_units_are_read_once_after_one_is_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = said(monkeypatch, 0)
    systemd.take_up("x.service")
    assert [call[2:] for call in calls] == [["enable", "--quiet", "--no-reload", "x.service"], ["daemon-reload"]]
