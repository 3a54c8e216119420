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
        return "ActiveState=active\nSubState=running\nMainPID=7\nJob=12\n"

    monkeypatch.setattr(shell, "run", run)
    monkeypatch.setattr(systemd, "TRY_SECONDS", 0)
    return calls


def test_a_busy_systemd_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = said(monkeypatch, 3)
    assert systemd.show("x.service") == {"active": "active", "sub": "running", "pid": 7, "job": True}
    assert len(calls) == 4


def test_one_that_never_answers_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, 100)
    with pytest.raises(Failure, match="timed out"):
        systemd.show("x.service")


def test_a_change_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = said(monkeypatch, 1)
    with pytest.raises(Failure):
        systemd.reload()
    assert len(calls) == 1
