"""Compile caches go once after a failed start, and come back for the release that is put back."""

from __future__ import annotations

from typing import Any

import pytest

from hostkit import shell, start_note
from hostkit.errors import Failure
from tests.unit.service_start import Service, service

__all__ = ["service"]  # a fixture


def test_caches_go_once_after_a_failed_start(service: Service) -> None:
    assert not service.start()
    service.end("exit-code", 60)
    assert not service.start(), "taken away, for they may be damaged"
    service.end("signal", 60)
    assert service.start(), "they were new: it is not they"
    service.end("exit-code", 60)
    assert service.start()
    service.end("exit-code", 2000)  # long after it was ready
    assert service.start()
    service.end("exit-code", 60)
    assert not service.start(), "after a good start it is done again"


def test_a_release_that_is_put_back_gets_its_caches_back(service: Service) -> None:
    service.start()
    (service.cache / "kernels").write_text("of the good release")
    service.end("success", 3600)
    service.release("b" * 16)
    assert service.start(), "of the same runtime and model"
    service.end("exit-code", 60)
    assert not service.start(), "systemd starts it again"
    service.end("exit-code", 60)
    service.release("a" * 16)
    assert service.start() and (service.cache / "kernels").read_text() == "of the good release"
    service.end("exit-code", 60)  # its own failure: now they are in doubt
    assert not service.start()


def test_what_another_release_failed_with_takes_nothing_from_this_one(service: Service) -> None:
    service.start()
    service.end("exit-code", 60)
    service.release("b" * 16)
    assert service.start()


def test_caches_in_doubt_are_kept_aside_until_a_start_is_good(service: Service) -> None:
    service.start()
    aside = service.cache.with_name("tiny-r1.failed")
    service.end("exit-code", 60)
    service.start()
    assert aside.is_dir()
    service.end("success", 3600)
    service.start()
    assert not aside.exists()


def test_an_end_that_somebody_asked_for_is_no_failed_start(service: Service) -> None:
    service.start()
    service.jobs = "4711\n"  # systemctl restart, and the engine ends with another status than 0
    service.end("exit-code", 60)
    service.jobs = ""
    assert service.start()
    service.end("success", 60)
    assert service.start()


def test_without_systemd_to_ask_an_early_end_is_a_failed_start(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> str:
        raise Failure("systemctl is not installed", "")

    monkeypatch.setattr(shell, "run", refused)
    service.start()
    service.end("exit-code", 60)
    assert not service.start()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"began": "x", "failed": 1, "wiped": 2}'])
def test_a_torn_note_is_none(service: Service, text: str) -> None:
    (service.state / start_note.NAME).write_text(text)
    assert start_note.read(str(service.state)) == {"began": None, "failed": None, "wiped": False, "release": ""}
    service.start()
