"""Waiting for a start: slow is waited for; a stall, a crash loop and a dead service are told with their first error."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from hostkit import events, gate, gate_log, gate_start, systemd
from hostkit.errors import Failure
from hostkit.gate_http import Client
from hostkit.gate_life import Life
from hostkit.gate_start import Start
from tests.unit.engine import Engine, engine, service, wanted
from tests.unit.servers import close

__all__ = ["engine", "service"]  # fixtures
Service = dict[str, Any]


def start(engine: Engine, old: int | None = None, timeout: float = 3) -> Start:
    return Start("x.service", Client("127.0.0.1", engine.port), timeout, time.time(), old)


def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(events, "log", said.append)
    return said


def states(monkeypatch: pytest.MonkeyPatch, service: Service, *changes: Service) -> None:
    """What systemd says at each look, the last again and again."""
    left: Iterator[Service] = iter(changes)

    def show(unit: str) -> Service:
        service.update(next(left, {}))
        return dict(service)

    monkeypatch.setattr(systemd, "show", show)
    monkeypatch.setattr(gate_start, "SETTLED_SECONDS", -1)


def test_the_process_that_is_being_replaced_is_never_asked(engine: Engine, service: Service) -> None:
    """It answers and would pass; but nothing it says is of the new release."""
    with pytest.raises(Failure, match="did not answer on port"):
        gate.run("x.service", engine.port, wanted(timeout=0.5), time.time(), 7)
    assert engine.asked == []
    assert gate.run("x.service", engine.port, wanted(), time.time(), 6)


def test_waiting_asks_nothing(engine: Engine, service: Service) -> None:
    gate.wait("x.service", engine.port, wanted(), time.time(), None)
    assert engine.asked == []


@pytest.mark.parametrize("state", [{"active": "failed"}, {"active": "inactive"}])
def test_a_service_that_ends_is_told_with_its_own_words(engine: Engine, service: Service, state: Service) -> None:
    service.update(state, log=["Traceback (most recent call last):", "ValueError: no such model", "stopped"])
    with pytest.raises(Failure, match="did not stay up") as caught:
        start(engine).wait()
    assert caught.value.cause == "x.service did not stay up: ValueError: no such model"
    assert "journalctl -u x.service" in caught.value.remedy


def test_a_crash_that_cannot_pass_by_itself_is_told_at_once(engine: Engine, service: Service) -> None:
    service.update(active="activating", sub="auto-restart", pid=None)
    service["log"] = ["usage: vllm", "vllm serve: error: unrecognized arguments: --no-such"]
    with pytest.raises(Failure, match=r"did not stay up: .*unrecognized arguments: --no-such") as caught:
        start(engine).wait()
    assert "take that flag out" in caught.value.remedy


def test_a_crash_loop_is_seen_at_the_second_restart(
    engine: Engine, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told(monkeypatch)
    service.update(log=["ERROR torch.OutOfMemoryError: CUDA out of memory.", "RuntimeError: the last word"])
    engine.health = 503
    crash, again = {"active": "activating", "sub": "auto-restart", "pid": None}, {"active": "active", "sub": "running"}
    states(monkeypatch, service, {**again, "pid": 8, "restarts": 0}, crash, {**again, "pid": 9, "restarts": 1}, crash,
           {**again, "pid": 10, "restarts": 2})  # fmt: skip
    with pytest.raises(Failure, match=r"crashes again and again \(2 times by now\): .*OutOfMemoryError") as caught:
        start(engine, old=7).wait()
    assert "gpu-memory-utilization" in caught.value.remedy
    assert len([line for line in said if "systemd starts it once more: ERROR torch.OutOfMemoryError" in line]) == 1


def test_one_crash_before_it_serves_is_a_warning(
    engine: Engine, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.update(log=["RuntimeError: NCCL error"])
    states(monkeypatch, service, {"pid": None, "restarts": 0, "active": "activating", "sub": "auto-restart"},
           {"pid": 9, "restarts": 1, "active": "active", "sub": "running"})  # fmt: skip
    (said,) = gate.run("x.service", engine.port, wanted(), time.time(), 7)["warnings"]
    assert said == "it crashed 1 times before it served: RuntimeError: NCCL error"


def test_restarts_of_the_process_before_are_not_its_own(
    engine: Engine, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    states(monkeypatch, service, {"pid": 7, "restarts": 5}, {"pid": None, "restarts": 5, "job": True},
           {"pid": 8, "restarts": 0, "job": False})  # fmt: skip
    begun = start(engine, old=7)
    begun.wait()
    assert (begun.pid, begun.crashes) == (8, 0)


def test_a_service_between_its_stop_and_its_start_is_not_dead(engine: Engine, service: Service) -> None:
    """A restart that is still to be done: the old process took its time, the new one is not there yet."""
    service.update(active="failed", pid=None, job=True)
    threading.Timer(0.5, lambda: service.update(active="active", pid=8, job=False)).start()
    start(engine, old=7).wait()


def test_only_the_log_of_its_own_starts_is_read(
    engine: Engine, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the old process says while it ends is no error of the new one."""
    asked: list[tuple[str, ...]] = []

    def journal(*matches: str) -> Iterator[str]:
        asked.append(matches)
        yield "ValueError: of the new one"

    monkeypatch.setattr(gate_log, "_journal", journal)
    states(monkeypatch, service, {"pid": 7, "invocation": "old"}, {"pid": 8, "invocation": "new"},
           {"active": "failed", "pid": None})  # fmt: skip
    engine.health = 503
    with pytest.raises(Failure, match="ValueError: of the new one"):
        start(engine, old=7).wait()
    assert {match for matches in asked for match in matches} == {
        "_SYSTEMD_INVOCATION_ID=new", "+", "INVOCATION_ID=new",
    }  # fmt: skip


def test_progress_says_what_the_log_says_last(
    engine: Engine, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told(monkeypatch)
    monkeypatch.setattr(gate_start, "PROGRESS_SECONDS", 0.1)
    engine.health, service["log"] = 503, ["INFO Loading weights took 12.5 seconds", "INFO Capturing CUDA graphs"]
    threading.Timer(0.6, lambda: setattr(engine, "health", 200)).start()
    start(engine).wait()
    assert said and all(line.startswith("x.service is starting (") for line in said)
    assert said[-1].endswith("s): INFO Capturing CUDA graphs")


def test_one_that_stands_still_is_told_from_a_slow_one(
    engine: Engine, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_start, "PROGRESS_SECONDS", 0.05)
    engine.health = 503
    looks = iter([0.0, 60.0, 0.0, 299.0, 301.0])
    monkeypatch.setattr(Life, "look", lambda self, group, lines: next(looks))
    said = told(monkeypatch)
    with pytest.raises(Failure, match=r"stands still: .* for 301 s; its last one: INFO .*KV cache size") as caught:
        start(engine).wait()
    assert "NCCL" in caught.value.remedy
    assert ["done nothing" in line for line in said] == [False, True, False, True]


def test_one_that_is_slow_is_waited_for_until_its_time_is_over(engine: Engine, service: Service) -> None:
    engine.health = 503
    with pytest.raises(Failure, match=r"did not answer on port .* within 0.5 s; its log ends with: .*KV") as caught:
        start(engine, timeout=0.5).wait()
    assert "gate.timeout" in caught.value.remedy


def test_an_answer_that_is_no_http_is_no_answer(service: Service) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def babble() -> None:
        with suppress(OSError):  # the test is over
            while True:
                listener.accept()[0].sendall(b"nonsense\r\n\r\n")

    thread = threading.Thread(target=babble, daemon=True)
    thread.start()
    with pytest.raises(Failure, match="did not answer"):
        gate.run("x.service", listener.getsockname()[1], wanted(timeout=0.7), time.time(), None)
    close(listener, thread)
