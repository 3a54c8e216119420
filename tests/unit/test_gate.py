"""The gate against a small server: what it proves, and that it never questions the process that is being replaced."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hostkit import gate, systemd
from hostkit.errors import Failure


class Engine:
    """Answers as vLLM does; `answers` are given in turn, the last one again and again."""

    def __init__(self) -> None:
        self.answers: list[str] = ["the answer is 42"]
        self.status = 200
        self.drafts = 0
        self.speculates = True
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(200, f'# HELP x\n{gate.DRAFTS}{{engine="0"}} {owner.drafts}.0\n')

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                owner.drafts += owner.speculates
                text = owner.answers.pop(0) if len(owner.answers) > 1 else owner.answers[0]
                self.reply(owner.status, json.dumps({"choices": [{"message": {"content": text}}]}))

            def reply(self, status: int, text: str) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def engine() -> Iterator[Engine]:
    found = Engine()
    yield found
    found.http.shutdown()
    found.http.server_close()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What systemd says of the unit, to be changed by the test; and its log."""
    said: dict[str, Any] = {"active": "active", "sub": "running", "pid": 7, "job": False, "log": []}
    monkeypatch.setattr(systemd, "show", lambda unit: said)
    monkeypatch.setattr(systemd, "log_since", lambda unit, began: said["log"])
    monkeypatch.setattr(gate, "SETTLED_SECONDS", 0.1)
    return said


def run(engine: Engine, old: int | None = None, **more: Any) -> dict[str, Any]:
    wanted = {"host": "127.0.0.1", "model": "m", "prompt": "?", "max_tokens": 4, "expect": {}, "speculative": True}
    return gate.run("x.service", engine.http.server_port, {**wanted, "timeout": 3, **more}, time.time(), old)


def test_an_instance_that_answers_and_speculates_passes(engine: Engine, service: dict[str, Any]) -> None:
    assert run(engine, expect={"contains": "42"}) == {"completion": "the answer is 42", "drafts": 1}
    assert run(engine, expect={"deterministic": True})["drafts"] == 2


def test_each_thing_that_is_wrong_is_said(engine: Engine, service: dict[str, Any]) -> None:
    with pytest.raises(Failure, match="lacks '43'"):
        run(engine, expect={"contains": "43"})
    engine.answers = ["one", "two"]
    with pytest.raises(Failure, match="differ"):
        run(engine, expect={"deterministic": True})
    engine.answers = [" "]
    with pytest.raises(Failure, match="empty"):
        run(engine)
    engine.answers, engine.speculates = ["one"], False
    with pytest.raises(Failure, match="no draft was made"):
        run(engine)
    assert run(engine, speculative=False)["drafts"] == 0


def test_health_alone_proves_nothing(engine: Engine, service: dict[str, Any]) -> None:
    engine.status = 500
    service["log"] = ["InvalidCxxCompiler: No working C++ compiler found"]
    with pytest.raises(Failure, match="fails with 500") as caught:
        run(engine)
    assert "g++" in caught.value.remedy


def test_the_process_that_is_being_replaced_is_never_asked(engine: Engine, service: dict[str, Any]) -> None:
    """It answers and would pass; but nothing it says is of the new release."""
    with pytest.raises(Failure, match="did not answer"):
        run(engine, old=7, timeout=0.7)
    assert engine.drafts == 0
    assert run(engine, old=6)


@pytest.mark.parametrize(
    "state",
    [{"active": "failed"}, {"active": "inactive"}, {"active": "activating", "sub": "auto-restart", "pid": None}],
)
def test_a_service_that_dies_is_told_with_its_own_words(
    engine: Engine, service: dict[str, Any], state: dict[str, Any]
) -> None:
    words = ["usage: vllm", "vllm serve: error: unrecognized arguments: --no-such"]
    service.update(
        state, log=[*words, "RuntimeError: Engine core initialization failed. See root cause above.", "stopped"]
    )
    with pytest.raises(Failure, match="unrecognized arguments: --no-such") as caught:
        run(engine)
    assert "take that flag out" in caught.value.remedy


def test_a_service_between_its_stop_and_its_start_is_not_dead(engine: Engine, service: dict[str, Any]) -> None:
    """A restart that is still to be done: the old process took its time, the new one is not there yet."""
    service.update(active="failed", pid=None, job=True)
    threading.Timer(0.5, lambda: service.update(active="active", pid=8, job=False)).start()
    assert run(engine, old=7)


def test_an_answer_that_is_no_http_is_no_answer(service: dict[str, Any]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def babble() -> None:
        with suppress(OSError):  # the test is over
            while True:
                listener.accept()[0].sendall(b"nonsense\r\n\r\n")

    threading.Thread(target=babble, daemon=True).start()
    wanted = {"host": "127.0.0.1", "model": "m", "prompt": "?", "max_tokens": 4, "expect": {}, "speculative": False}
    with pytest.raises(Failure, match="did not answer"):
        gate.run("x.service", listener.getsockname()[1], {**wanted, "timeout": 0.7}, time.time(), None)
    listener.close()
