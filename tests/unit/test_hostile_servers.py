"""Servers and hubs that answer what none should: one line says so, and no token goes where it does not belong."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpufleet.cli import main
from gpufleet.wheelhouse.items import FetchError
from gpufleet.wheelhouse.store import Store
from tests.unit.hubs import COMMIT, Bench, bench
from tests.unit.test_models_command import CONFIG, checkpoint, fleet

__all__ = ["bench", "checkpoint", "fleet"]  # fixtures
INDEX = "model.safetensors.index.json"
TOKEN = "hf_" + "secret"


class Liar:
    """Answers each request by `answer(path)`: (status, headers, body). `asked`: (path, Authorization)"""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.asked = files, list[tuple[str, str | None]]()
        self.answer: Callable[[str], tuple[int, dict[str, str], bytes]] = self.file
        liar = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                liar.asked.append((self.path, self.headers.get("Authorization")))
                status, headers, body = liar.answer(self.path)
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def file(self, path: str) -> tuple[int, dict[str, str], bytes]:
        body = self.files.get(path.rpartition("/")[2])
        return (404, {}, b"") if body is None else (200, {}, body)

    def about(self, **changes: Any) -> dict[str, Any]:
        """What the hub tells of a repository."""
        listed = [
            {"rfilename": name, "size": len(data), "blobId": "", "lfs": None}
            | ({"lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 1}})
            for name, data in self.files.items()
        ]
        return {"id": "org/Tiny", "private": False, "sha": COMMIT, "tags": [], "siblings": listed} | changes


@pytest.fixture
def liar(checkpoint: Path, fleet: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Liar]:
    monkeypatch.setattr("gpufleet.checkpoint.web.time.sleep", lambda seconds: None)
    found = Liar({path.name: path.read_bytes() for path in checkpoint.iterdir()})
    monkeypatch.setenv("HF_ENDPOINT", found.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield found
    found.server.shutdown()
    found.server.server_close()


def add(source: str) -> tuple[int, str]:
    """(exit code, the one line that says what is wrong)"""
    found = CliRunner().invoke(main, ["models", "add", source, "--print"])
    assert isinstance(found.exception, SystemExit), repr(found.exception)
    lines = [line for line in found.stderr.splitlines() if line.startswith("gpufleet: ")]
    assert len(lines) == 1 and TOKEN not in found.output
    return found.exit_code, lines[0]


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (302, {"Location": "file:///etc/passwd"}, "302"),
        (302, {"Location": "ftp://127.0.0.1/x"}, "no http address"),
        (302, {"Location": "http://[x"}, "Invalid IPv6 URL"),
        (302, {"Location": "/config.json"}, "302"),
        (200, {"Content-Length": "²"}, "does not say how long it is"),
        (200, {"Content-Length": "-1"}, "does not say how long it is"),
        (200, {"X-Linked-Size": "9" * 5000}, "does not say how long it is"),
        (200, {"X-Linked-Size": "9" * 13}, "no such file has so many"),
        (500, {}, "500"),
        (401, {}, "401"),
    ],
)
def test_a_server_that_answers_oddly(status: int, headers: dict[str, str], said: str, liar: Liar) -> None:
    liar.answer = lambda path: (status, headers, b"{}" if status == 200 and not headers.get("Content-Length") else b"")
    code, line = add(f"{liar.url}/My-Model")
    assert code in (1, 2)
    assert said in line


@pytest.mark.parametrize("name", ["\ud800.safetensors", "../../etc/passwd", "http://127.0.0.1:1/x", "x\r\nHost: y"])
def test_nobody_is_asked_for_a_name_that_no_file_can_have(name: str, liar: Liar) -> None:
    liar.files[INDEX] = json.dumps({"weight_map": {"a": name}}).encode()
    code, line = add(f"{liar.url}/My-Model")
    assert (code, "no name that a page can have" in line) == (2, True)
    odd = copy.deepcopy(CONFIG) | {"auto_map": {"a": f"{name}.X", "b": "modeling_tiny.X"}}
    del liar.files[INDEX]
    liar.files |= {"config.json": json.dumps(odd).encode(), "modeling_tiny.py": b"pass"}
    found = CliRunner().invoke(main, ["models", "add", f"{liar.url}/My-Model", "--print"])
    assert found.exit_code == 0
    assert "modeling_tiny.py: {size: 4" in found.stdout
    assert not any("passwd" in path or "%" in path for path, _ in liar.asked)


def sibling(**changes: Any) -> list[dict[str, Any]]:
    return [{"rfilename": "config.json", "size": 1, "blobId": "", "lfs": None} | changes]


@pytest.mark.parametrize(
    "body",
    [
        b"<html>log in</html>", b"[]", b"null", b"{}", b"[" * 100_000,
        *({"sha": sha} for sha in (None, 5, "../../x")),
        *({"siblings": listed} for listed in (5, [5], sibling(lfs=5))),
        *({"siblings": sibling(size=size)} for size in ("abc", -5, 1.5, 10**18)),
        *({"siblings": sibling(rfilename=name)} for name in (5, None)),
    ],
)  # fmt: skip
def test_a_hub_that_is_none(body: bytes | dict[str, Any], liar: Liar) -> None:
    text = body if isinstance(body, bytes) else json.dumps(liar.about(**body)).encode()
    liar.answer = lambda path: (200, {}, text) if "/api/" in path else liar.file(path)
    code, line = add("org/Tiny")
    assert code in (1, 2)
    assert liar.url in line or "org/Tiny" in line


@pytest.mark.parametrize(
    "address", ["foo", "http://[", "http://h:abc", "ftp://x", "http://", "http://a b", "file:///x"]
)
def test_an_endpoint_that_is_no_address(address: str, fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    for source in ("org/Tiny", "https://huggingface.co/org/Tiny"):
        code, line = add(source)
        assert (code, "is no http address of a hub" in line) == (2, True)


def test_a_password_of_an_endpoint_is_not_shown(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://me:p4ss@127.0.0.1:1")
    code, line = add("org/Tiny")
    assert (code, "http://127.0.0.1:1 cannot be reached" in line, "p4ss" in line) == (1, True, False)


def test_a_token_that_no_header_can_hold(liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_é")
    code, line = add("org/Tiny")
    assert (code, "HF_TOKEN" in line, "hf_é" in line) == (2, True, False)


def test_a_token_goes_to_no_other_host(liar: Liar, checkpoint: Path) -> None:
    other = Liar(liar.files)
    other.url = other.url.replace("127.0.0.1", "localhost")
    about = json.dumps(liar.about()).encode()
    other.answer = lambda path: (200, {}, about) if "/api/" in path else other.file(path)
    liar.answer = lambda path: (302, {"Location": f"{other.url}{path}"}, b"")
    found = CliRunner().invoke(main, ["models", "add", "org/Tiny", "--print"])
    other.server.shutdown()
    other.server.server_close()
    assert found.exit_code == 0
    assert {token for _, token in liar.asked} == {f"Bearer {TOKEN}"}
    assert other.asked and {token for _, token in other.asked} == {None}


def test_a_store_that_may_not_be_written_is_an_error_of_the_fetch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.only("config.json")
    bench.ready()

    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "store/locks/x")

    monkeypatch.setattr(Store, "turn", refused)
    with pytest.raises(FetchError, match=r"Permission denied.*what is there is kept"):
        bench.mend()
