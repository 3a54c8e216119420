"""Asking an instance over HTTP. Nothing is taken for granted of what answers: size, time and shape are all bounded."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from typing import Any, NamedTuple, Optional

from hostkit import metrics

LARGEST = 4 << 20  # bytes of an answer; /metrics of vLLM has some 100 KB
LONGEST = 300  # characters of what is quoted


class Unanswered(Exception):
    """No whole answer came, or none that can be read."""


class Refused(Exception):
    """An answer with another status than 200; `detail` is the beginning of what it says, on one line."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.detail = quoted(body.decode("utf-8", "replace"))
        super().__init__("{}: {}".format(status, self.detail))


class Reply(NamedTuple):
    """One chat completion. Token counts are the engine's own, None when it gives none; seconds: how long it took.

    + calls: [(name, arguments as text)] of the tools it wants called
    """

    text: str
    reasoning: str
    calls: list[tuple[str, str]]
    finish: str
    prompt_tokens: Optional[int]
    completion_tokens: Optional[int]
    seconds: float

    @property
    def spoken(self) -> str:
        """The answer; the thoughts when it did not get beyond them."""
        return self.text if self.text.strip() else self.reasoning


class Health(NamedTuple):
    """What /health says: the status of HTTP, None when no answer came; why it is not well, empty when it is."""

    status: Optional[int]
    said: str


class Client:
    """No proxy, no redirects: the instance is on this very box."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def healthy(self, seconds: float = 5) -> bool:
        return not self.health(seconds).said

    def health(self, seconds: float) -> Health:
        try:
            self.ask("GET", "/health", seconds)
        except Refused as error:
            return Health(error.status, "/health says {}".format(error.status))
        except Unanswered as error:
            return Health(None, str(error))
        return Health(200, "")

    def chat(self, body: dict[str, Any], seconds: float) -> Reply:
        """Raises Refused, or Unanswered also for an answer that is no chat completion."""
        began = time.monotonic()
        answer = self.json("POST", "/v1/chat/completions", seconds, body)
        return _reply(answer, time.monotonic() - began)

    def json(self, method: str, path: str, seconds: float, body: Optional[dict[str, Any]] = None) -> Any:
        try:
            return json.loads(self.ask(method, path, seconds, body))
        except (ValueError, RecursionError):
            raise Unanswered("what it answers is no JSON")

    def ask(self, method: str, path: str, seconds: float, body: Optional[dict[str, Any]] = None) -> bytes:
        """The body of an answer with status 200. Raises Refused for another status, else Unanswered.

        + seconds: for all of it, so that an answer that trickles does not hold the gate
        """
        connection = http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        late = threading.Event()
        timer = None
        try:
            connection.connect()
            timer = threading.Timer(seconds, _cut, (connection.sock, late))
            timer.daemon = True
            timer.start()
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            # Closed by itself, too: while it is not read to its end, it keeps the connection open.
            with connection.getresponse() as answer:
                text = answer.read(LARGEST + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unanswered(_late(seconds) if late.is_set() else _reason(error))
        finally:
            if timer:
                timer.cancel()
            connection.close()
        if late.is_set():
            raise Unanswered(_late(seconds))
        if answer.status != 200:
            raise Refused(answer.status, text)
        if len(text) > LARGEST:
            raise Unanswered("it answers with more than {} MiB".format(LARGEST >> 20))
        return text

    def metrics(self, seconds: float = 10) -> str:
        """The page of /metrics; empty where there is none."""
        try:
            return self.ask("GET", "/metrics", seconds).decode("utf-8", "replace")
        except (Unanswered, Refused):
            return ""

    def counters(self) -> dict[str, float]:
        """The engine's counters, each summed over its labels; empty where it has no /metrics."""
        found: dict[str, float] = {}
        for name, value in metrics.samples(self.metrics()):
            found[name] = found.get(name, 0.0) + value
        return found

    def context(self, model: str) -> Optional[int]:
        """The longest context, prompt and answer together, that the engine says it has; None when it does not say."""
        try:
            found = self.json("GET", "/v1/models", 10)["data"]
            sizes = [item.get("max_model_len") for item in found if item.get("id") == model]
        except (Unanswered, Refused, KeyError, TypeError, AttributeError):
            return None
        return next((size for size in sizes if _is_count(size)), None)


def quoted(text: str) -> str:
    """Text of an engine for a line of a report."""
    return " ".join(text.split())[:LONGEST]


def _cut(sock: socket.socket, late: threading.Event) -> None:
    late.set()
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has just ended by itself


def _late(seconds: float) -> str:
    return "no whole answer within {:.0f} s".format(seconds)


def _reason(error: Exception) -> str:
    """What Python's http.client says of what is no HTTP is often no more than what it got: then with its name."""
    return str(error) if isinstance(error, OSError) and str(error) else repr(error)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _reply(answer: Any, seconds: float) -> Reply:
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        given = [(message.get(key) or "") for key in ("content", "reasoning_content", "reasoning")]
        text, older, newer = (item if isinstance(item, str) else "" for item in given)
        calls = [
            (str(call["function"]["name"]), str(call["function"]["arguments"]))
            for call in message.get("tool_calls") or []
        ]
        usage = answer.get("usage") or {}
        counts = [usage.get(key) for key in ("prompt_tokens", "completion_tokens")]
        prompt, completion = (count if _is_count(count) else None for count in counts)
        return Reply(text, older or newer, calls, str(choice.get("finish_reason")), prompt, completion, seconds)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Unanswered("what it answers is no chat completion: {}".format(quoted(json.dumps(answer))))
