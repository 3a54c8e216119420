"""What answers is not trusted: its size, its time and its shape are bounded."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hostkit import gate_http
from hostkit.gate_http import Client, Refused, Unanswered
from tests.unit.servers import close

HEAD = b"HTTP/1.1 200 OK\r\n"


class Raw:
    """A server that sends what it is given, and no more, to each who asks."""

    def __init__(self, pieces: list[bytes], pause: float = 0.0) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.pieces, self.pause, self.over = pieces, pause, threading.Event()
        self.client = Client("127.0.0.1", self.listener.getsockname()[1])
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while not self.over.is_set():
            try:
                connection, _ = self.listener.accept()
                with connection:
                    connection.recv(65536)
                    for piece in self.pieces:
                        connection.sendall(piece)
                        self.over.wait(self.pause)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass  # what comes after the end would reset the connection
            except OSError:  # the test is over, or the client has had enough
                continue

    def close(self) -> None:
        self.over.set()
        close(self.listener, self.thread)


@pytest.fixture
def servers() -> Iterator[list[Raw]]:
    opened: list[Raw] = []
    yield opened
    for server in opened:
        server.close()


def asking(servers: list[Raw], *pieces: bytes, pause: float = 0.0) -> Client:
    servers.append(Raw(list(pieces), pause))
    return servers[-1].client


def chat(client: Client, body: Any) -> gate_http.Reply:
    return client.chat(body, 5)


def answering(servers: list[Raw], answer: Any) -> Client:
    return asking(servers, HEAD + b"\r\n" + json.dumps(answer).encode())


def test_an_answer_that_never_ends_is_cut_off(servers: list[Raw], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_http, "LARGEST", 1 << 20)
    client = asking(servers, HEAD + b"\r\n", b"x" * (3 << 20))
    with pytest.raises(Unanswered, match="more than 1 MiB"):
        client.ask("GET", "/", 5)


def test_an_answer_that_trickles_does_not_hold_the_gate(servers: list[Raw]) -> None:
    """Each byte comes in time; the whole does not."""
    client = asking(servers, HEAD + b"Content-Length: 100\r\n\r\n", *[b"x"] * 100, pause=0.05)
    with pytest.raises(Unanswered, match="no whole answer within 1 s"):
        client.ask("GET", "/", 0.6)


def test_headers_that_trickle_do_not_either(servers: list[Raw]) -> None:
    client = asking(servers, HEAD, *[b"X-A: b\r\n"] * 100, pause=0.05)
    with pytest.raises(Unanswered, match="no whole answer"):
        client.ask("GET", "/", 0.6)


def test_nobody_there_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert Client("127.0.0.1", port).healthy() is False
    assert Client("127.0.0.1", port).counters() == {}


def test_a_redirect_is_not_followed(servers: list[Raw]) -> None:
    client = asking(servers, b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(Refused, match="302"):
        client.ask("GET", "/", 5)


def test_a_proxy_of_the_environment_is_not_asked(servers: list[Raw], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:1/")
    assert asking(servers, HEAD + b"\r\nhello").ask("GET", "/", 5) == b"hello"


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"tool_calls": [{}]}}]},
        {"choices": "no"},
        "text",
        7,
    ],
)
def test_what_is_no_completion_is_said_to_be_none(servers: list[Raw], answer: Any) -> None:
    with pytest.raises(Unanswered, match="no chat completion"):
        chat(answering(servers, answer), {})


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b"\xff\xfe"])
def test_what_is_no_json_is_said_to_be_none(servers: list[Raw], text: bytes) -> None:
    with pytest.raises(Unanswered, match="no JSON"):
        chat(asking(servers, HEAD + b"\r\n" + text), {})


def test_what_has_another_type_counts_as_not_there(servers: list[Raw]) -> None:
    message = {"content": ["a list"], "reasoning_content": None, "reasoning": "thoughts"}
    usage = {"prompt_tokens": "many", "completion_tokens": True}
    found = chat(answering(servers, {"choices": [{"message": message}], "usage": usage}), {})
    assert (found.text, found.reasoning, found.spoken) == ("", "thoughts", "thoughts")
    assert (found.prompt_tokens, found.completion_tokens, found.calls) == (None, None, [])


def test_a_refusal_is_quoted_on_one_line_and_not_whole(servers: list[Raw]) -> None:
    client = asking(servers, b"HTTP/1.1 500 Oops\r\n\r\n" + b"line\n" * 1000)
    with pytest.raises(Refused) as caught:
        client.ask("GET", "/", 5)
    assert caught.value.status == 500
    assert caught.value.detail.startswith("line line") and len(caught.value.detail) <= gate_http.LONGEST


def test_counters_are_summed_over_their_labels(servers: list[Raw]) -> None:
    text = b'# HELP a x\na{engine="0"} 2.0\na{engine="1",le="+Inf"} 3.0\nb 4\nc{x="y z"} nan?\n\n'
    assert asking(servers, HEAD + b"\r\n" + text).counters() == {"a": 5.0, "b": 4.0}


@pytest.mark.parametrize(
    ("answer", "size"),
    [
        ({"data": [{"id": "other", "max_model_len": 5}, {"id": "m", "max_model_len": 4096}]}, 4096),
        ({"data": [{"id": "m"}]}, None),
        ({"data": [{"id": "m", "max_model_len": "4096"}]}, None),
        ({"data": None}, None),
        ([], None),
    ],
)
def test_the_context_is_what_the_engine_says(servers: list[Raw], answer: Any, size: int | None) -> None:
    assert answering(servers, answer).context("m") == size
