"""A box with a store of models, and a server that gives a large file by range, for the tests of pieces."""

from __future__ import annotations

import hashlib
import io
import os
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hostkit import fetch, model, pieces, receive, stock, store

PIECE = 1000
DATA = random.Random(10).randbytes(10_500)  # eleven pieces, the last shorter
SHA = hashlib.sha256(DATA).hexdigest()
NAME = "model-00001-of-00002.safetensors"
SUMS = [hashlib.sha256(DATA[start : start + PIECE]).hexdigest() for start in range(0, len(DATA), PIECE)]
FILE = {"filename": NAME, "sha256": SHA, "size": len(DATA), "place": "models", "pieces": SUMS}


def flipped(*places: int, data: bytes = DATA) -> bytes:
    changed = bytearray(data)
    for place in places:
        changed[place] ^= 1
    return bytes(changed)


class Box:
    """The models of a box: its store, and directories beside it."""

    def __init__(self, root: Path) -> None:
        self.models = root / "models"
        self.path = self.models / ".store" / SHA / NAME

    def put(self, data: bytes, path: Path | None = None) -> Path:
        target = path or self.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return target

    def damaged(self, *places: int) -> list[list[int]]:
        """A part with holes where these bytes are wrong."""
        self.put(flipped(*places))
        found: list[list[int]] = self.look(check=True)["holes"][SHA]
        return found

    def look(self, check: bool = False, **more: Any) -> dict[str, Any]:
        return stock.run({"files": [{**FILE, **more.pop("file", {})}], "check": check, **more})

    def send(self, data: bytes, **more: Any) -> dict[str, Any]:
        sys.stdin = io.TextIOWrapper(io.BytesIO(data))
        return receive.run({**FILE, "offset": 0, **more})

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path.parent))

    def whole(self) -> bool:
        return self.names() == [NAME] and self.path.read_bytes() == DATA


def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    monkeypatch.setattr(pieces, "PIECE", PIECE)
    monkeypatch.setattr(store, "ROOT", str(tmp_path / "store"))
    monkeypatch.setattr(store, "MODELS_ROOT", str(tmp_path / "models/.store"))
    monkeypatch.setattr(model, "MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    return Box(tmp_path)


class Server:
    """Gives DATA by range, and counts what it gave; `data` may be damaged, `ranges` unknown to it."""

    def __init__(self) -> None:
        self.data, self.ranges, self.cut = DATA, True, 0
        self.asked: list[str | None] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = self.headers.get("Range") if owner.ranges else None
                owner.asked.append(asked)
                first, _, last = (asked or "bytes=0-").removeprefix("bytes=").partition("-")
                body = owner.data[int(first) : int(last) + 1 if last else len(owner.data)]
                self.send_response(206 if asked else 200)
                self.send_header("Content-Length", str(len(body)))
                if asked:
                    self.send_header("Content-Range", f"bytes {first}-{int(first) + len(body) - 1}/{len(owner.data)}")
                self.end_headers()
                if owner.cut:
                    owner.cut -= 1
                    body = body[: len(body) // 2]
                self.wfile.write(body)
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/file"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def spec(self, *urls: str, peer: bool = True) -> dict[str, Any]:
        return {"files": [{**FILE, "urls": list(urls) or [self.url]}], "peer": peer}

    def lengths(self) -> list[int]:
        """Of the ranges that were asked for."""
        spans = [(each or "").removeprefix("bytes=").split("-") for each in self.asked]
        return [int(last) - int(first) + 1 for first, last in spans]


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    found = Server()
    yield found
    found.http.shutdown()
    found.http.server_close()
