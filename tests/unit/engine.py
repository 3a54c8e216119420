"""A small server that answers as vLLM does, and in all the ways in which engines fail; and a unit to change."""

from __future__ import annotations

import base64
import json
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hostkit import gate, gate_log, gate_start, systemd

KV = "INFO 11-30 02:00:00 [kv_cache_utils.py:2235] GPU KV cache size: 207,692 tokens"


@dataclass
class Engine:
    """`answers` are given in turn, the last one again and again.

    + limit: longer prompts get 400, as they do from vLLM; says: what /v1/models says of it, where that is another
    + cuts: tokens to which longer prompts are cut without a word
    + per_word: tokens of a word
    + call: how a tool is called: "parsed", "text", "words", "broken"
    + colour: what images are said to be; None: what they are
    + grows: tokens that each look at /metrics finds more; + silent: it answers nothing before it is closed
    + long: the answer to prompts of more than a thousand tokens
    """

    answers: list[str] = field(default_factory=lambda: ["the answer is 42"])
    status: int = 200
    refusal: str = "no"
    speculates: bool = True
    accepts: int = 1
    drafts: int = 0
    accepted: int = 0
    generated: int = 0
    prompted: int = 0
    limit: int | None = 4096
    says: int | None = None
    cuts: int | None = None
    counts: bool = True
    per_word: float = 2.0
    call: str = "parsed"
    colour: str | None = None
    long: str = "random words"
    finish: str = "stop"
    metrics: bool = True
    health: int = 200
    grows: int = 0
    silent: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        owner, self.closed = self, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.get(self)

            def do_POST(self) -> None:
                owner.post(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_port
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.closed.set()
        self.http.shutdown()
        self.http.server_close()

    def get(self, handler: BaseHTTPRequestHandler) -> None:
        if self.silent:
            self.closed.wait()
        elif handler.path == "/health":
            reply(handler, self.health, "")
        elif handler.path == "/v1/models":
            reply(handler, 200, json.dumps({"data": [{"id": "m", "max_model_len": self.says or self.limit}]}))
        elif self.metrics:
            self.generated += self.grows
            counters = {gate.DRAFTS: self.drafts, gate.ACCEPTED: self.accepted}
            counters |= {"vllm:generation_tokens_total": self.generated, "vllm:prompt_tokens_total": self.prompted}
            lines = [f'# HELP {name} x\n{name}{{engine="0"}} {value}.0' for name, value in counters.items()]
            reply(handler, 200, "\n".join(lines) + "\n")
        else:
            reply(handler, 404, "")

    def post(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        self.asked.append(body)
        (message,) = body["messages"]
        content = message["content"]
        words = len(content.split()) if isinstance(content, str) else 20
        tokens = 10 + int(words * self.per_word)
        if self.status != 200:
            reply(handler, self.status, self.refusal)
            return
        if self.limit and tokens + body["max_tokens"] > self.limit:
            reply(handler, 400, f"This model's maximum context length is {self.limit} tokens")
            return
        self.drafts += self.speculates
        self.accepted += self.accepts if self.speculates else 0
        usage = {"prompt_tokens": min(tokens, self.cuts or tokens), "completion_tokens": body["max_tokens"]}
        self.generated += usage["completion_tokens"]
        self.prompted += usage["prompt_tokens"]
        choice = {"message": self.message(body, content, tokens), "finish_reason": self.finish}
        reply(handler, 200, json.dumps({"choices": [choice], **({"usage": usage} if self.counts else {})}))

    def message(self, body: dict[str, Any], content: Any, tokens: int) -> dict[str, Any]:
        if "tools" in body:
            call = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
            text = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
            return {
                "parsed": {"content": None, "tool_calls": [{"function": call}]},
                "broken": {"content": None, "tool_calls": [{"function": {**call, "arguments": '{"city": '}}]},
                "text": {"content": text},
                "words": {"content": "I cannot know the weather."},
            }[self.call]
        if isinstance(content, list):
            return {"content": f"It is {self.colour or colour_of(content[0]['image_url']['url'])}."}
        if tokens > 1000:
            return {"content": self.long}
        return {"content": self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]}


def reply(handler: BaseHTTPRequestHandler, status: int, text: str) -> None:
    handler.send_response(status)
    handler.end_headers()
    handler.wfile.write(text.encode())


def colour_of(url: str) -> str:
    """Red or not, by the first pixel of a PNG of three bytes a pixel and no filter."""
    data = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    start = data.index(b"IDAT")
    size = int.from_bytes(data[start - 4 : start], "big")
    return "Red" if zlib.decompress(data[start + 4 : start + 4 + size])[1:4] == b"\xff\0\0" else "another colour"


def wanted(**more: Any) -> dict[str, Any]:
    """A gate that asks for an answer and nothing else."""
    asked: dict[str, Any] = {"host": "127.0.0.1", "model": "m", "prompt": "?", "max_tokens": 4, "expect": {}}
    return {**asked, "speculative": None, "timeout": 3, **more}


@pytest.fixture
def engine() -> Iterator[Engine]:
    found = Engine()
    yield found
    found.close()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What systemd says of the unit, to be changed by the test; and its log."""
    said: dict[str, Any] = {"active": "active", "sub": "running", "pid": 7, "job": False, "log": [KV]}
    monkeypatch.setattr(systemd, "show", lambda unit: dict(said))
    monkeypatch.setattr(systemd, "log_since", lambda unit, began, lines=400: said["log"][-lines:])
    monkeypatch.setattr(gate_log, "TRY_SECONDS", 0.01)
    monkeypatch.setattr(gate_start, "SETTLED_SECONDS", 0.1)
    monkeypatch.setattr(gate_start, "LOOK_SECONDS", 0.02)
    return said
