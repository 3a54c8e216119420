"""The API: /health, /v1/models, /v1/chat/completions, /tokenize, /metrics, /version, with vLLM's answers and errors."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, ClassVar

from . import answers
from .metrics import Metrics
from .moods import Moods

LONGEST_ANSWER = 64  # tokens, when a request does not say
VERSION = "0.27.1+standin"


class Refused(Exception):
    """A request that gets no answer. + kind: the error's type"""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


@dataclass
class Engine:
    """What is served. `drafts`: speculative tokens a step; 0: it does not speculate."""

    name: str
    path: str
    max_model_len: int
    drafts: int
    tools: bool
    images: bool
    moods: Moods
    said: int = 0
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.name, speculative=self.drafts > 0)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """A chat completion, after the time that its tokens take. Raises Refused."""
        self._check(body)
        prompt = answers.prompt_tokens(body)
        given = body.get("max_completion_tokens") or body.get("max_tokens")
        tokens = int(given or min(LONGEST_ANSWER, self.max_model_len - prompt))
        if prompt + tokens > self.max_model_len:
            raise Refused(
                400,
                "BadRequestError",
                f"This model's maximum context length is {self.max_model_len} tokens. However, you requested {tokens} "
                f"output tokens and your prompt contains {prompt} input tokens, for a total of {prompt + tokens} "
                "tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
            )
        self.metrics.add(num_requests_running=1)
        try:
            time.sleep(tokens * self.moods.token_seconds)
        finally:
            self.metrics.add(num_requests_running=-1)
        if "fail-completions" in self.moods:
            raise Refused(500, "InternalServerError", "EngineCore encountered an issue. See stack trace for details.")
        self.said += 1
        self.metrics.add(prompt_tokens_total=prompt, generation_tokens_total=tokens, request_success_total=1)
        self._count_drafts(tokens)
        call = answers.tool_call(body)
        text = answers.text(answers.asked(body), tokens, self.said if "wavering" in self.moods else 0)
        message = {"role": "assistant", "content": None if call else text, "tool_calls": [call] if call else []}
        reason = "tool_calls" if call else "length"
        return {
            **self.head("chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens},
        }

    def head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self.said}", "object": kind, "created": int(time.time()), "model": self.name}

    def _check(self, body: dict[str, Any]) -> None:
        if body.get("model") not in (None, self.name):
            raise Refused(404, "NotFoundError", f"The model `{body['model']}` does not exist.")
        if body.get("tools") and body.get("tool_choice", "auto") != "none" and not self.tools:
            words = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            raise Refused(400, "BadRequestError", words)
        if answers.has_image(body) and not self.images:
            raise Refused(400, "BadRequestError", "At most 0 image(s) may be provided in one prompt.")

    def _count_drafts(self, tokens: int) -> None:
        if not self.drafts or "no-drafts" in self.moods:
            return
        rejects = "rejects-drafts" in self.moods
        steps = tokens if rejects else -(-tokens // (self.drafts + 1))
        self.metrics.add(
            spec_decode_num_drafts_total=steps,
            spec_decode_num_draft_tokens_total=steps * self.drafts,
            spec_decode_num_accepted_tokens_total=0 if rejects else tokens - steps,
        )

    def tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        count = answers.prompt_tokens(body)
        return {"count": count, "max_model_len": self.max_model_len, "tokens": list(range(count)), "token_strs": None}

    def models(self) -> dict[str, Any]:
        entry = {"id": self.name, "object": "model", "owned_by": "vllm", "root": self.path}
        return {"object": "list", "data": [{**entry, "max_model_len": self.max_model_len}]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: ClassVar[Engine]

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(200, b"", "text/plain")
        elif self.path == "/metrics":
            self._send(200, self.engine.metrics.text().encode(), "text/plain; version=0.0.4")
        elif self.path in ("/v1/models", "/version"):
            self._json(200, self.engine.models() if self.path == "/v1/models" else {"version": VERSION})
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if self.path not in ("/v1/chat/completions", "/tokenize"):
                raise Refused(404, "NotFoundError", "Not Found")
            body = json.loads(raw)
            if self.path == "/tokenize":
                self._json(200, self.engine.tokenize(body))
            elif body.get("stream"):
                self._stream(self.engine.answer(body), body)
            else:
                self._json(200, self.engine.answer(body))
        except Refused as refused:
            print(f'INFO:     "POST {self.path} HTTP/1.1" {refused.status}: {refused}', flush=True)
            error = {"message": str(refused), "type": refused.kind, "param": None, "code": refused.status}
            self._json(refused.status, {"error": error})
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as wrong:
            words = f"{type(wrong).__name__}: {wrong}"
            self._json(400, {"error": {"message": words, "type": "BadRequestError", "param": None, "code": 400}})

    def _stream(self, whole: dict[str, Any], body: dict[str, Any]) -> None:
        """Server-sent events: the words one by one. They come at once; the time was spent before."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for part in self._parts(whole, body):
            self.wfile.write(f"data: {part}\n\n".encode())

    def _parts(self, whole: dict[str, Any], body: dict[str, Any]) -> Iterator[str]:
        head, (choice,) = self.engine.head("chat.completion.chunk"), whole["choices"]
        words = (choice["message"]["content"] or "").split()
        deltas = [{"content": f"{' ' if index else ''}{word}"} for index, word in enumerate(words)]
        calls = [{"index": 0, **call} for call in choice["message"]["tool_calls"]]
        for delta in [{"role": "assistant"}, *deltas, *([{"tool_calls": calls}] if calls else [])]:
            yield json.dumps({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        yield json.dumps({**head, "choices": [end]})
        if (body.get("stream_options") or {}).get("include_usage"):
            yield json.dumps({**head, "choices": [], "usage": whole["usage"]})
        yield "[DONE]"

    def _json(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: a client that asks ten times a second would fill the box's journal."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self) -> None:
        """Without looking up the name of its address, which can take seconds on a box without a nameserver."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to tell of."""


def serve(engine: Engine, host: str, port: int) -> int:
    """Answer until the process ends; returns the port. Raises OSError when it is taken."""
    handler = type("EngineHandler", (Handler,), {"engine": engine})
    server = Server((host, port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port
