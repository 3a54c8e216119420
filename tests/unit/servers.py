"""A small web server for tests of downloads: files with ranges, and all the ways in which such servers fail."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Server:
    """Serves `files` by path.

    + ranges: whether it knows them
    + broken: answers that end after half of what they announce
    + hanging: answers that stop after half and hold the connection
    + busy: answers with 503
    + trouble: where the path of what fails so begins
    + unannounced: whether the length is left out, so that only the end of the connection ends a file
    + moved: path → address that it redirects to
    """

    files: dict[str, bytes] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    password: str = ""
    ranges: bool = True
    broken: int = 0
    hanging: int = 0
    busy: int = 0
    trouble: str = "/"
    unannounced: bool = False
    shifted: int = 0
    sent: int = 0
    asked: list[str] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.released = threading.Event()
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self.http.shutdown()
        self.http.server_close()

    def add(self, path: str, data: bytes, kind: str = "application/octet-stream") -> str:
        """Serve a file; its address."""
        self.files[path], self.types[path] = data, kind
        return self.url + path

    def index(self, name: str, *links: dict[str, object], under: str = "/simple") -> None:
        """Serve the page of a project as JSON (PEP 691)."""
        page = json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": links})
        self.add(f"{under}/{name}/", page.encode(), "application/vnd.pypi.simple.v1+json")

    def take(self, name: str, path: str) -> bool:
        """One of the counted failures, when there is one left."""
        with self.lock:
            left = int(getattr(self, name)) if path.startswith(self.trouble) else 0
            if left:
                setattr(self, name, left - 1)
            return left > 0

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path
        handler.close_connection = True
        self.asked.append(path)
        self.logins.append(handler.headers.get("Authorization"))
        if path in self.moved:
            handler.send_response(302)
            handler.send_header("Location", self.moved[path])
            handler.end_headers()
            return
        if self.password and handler.headers.get("Authorization") != self.password:
            handler.send_error(401)
            return
        if self.take("busy", path):
            handler.send_error(503)
            return
        if path in self.statuses or path not in self.files:
            handler.send_error(self.statuses.get(path, 404))
            return
        data = self.files[path]
        wanted = handler.headers.get("Range") if self.ranges else None
        first, _, last = (wanted or "").removeprefix("bytes=").partition("-")
        start, end = int(first or 0), min(int(last or len(data)) + 1, len(data))
        if wanted and start >= len(data):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(data)}")
            handler.end_headers()
            return
        if wanted and self.take("shifted", path):
            start = 0
        body = data[start:end]
        handler.send_response(206 if wanted else 200)
        handler.send_header("Content-Type", self.types.get(path, "application/octet-stream"))
        if wanted:
            handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        if not self.unannounced:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        hangs = self.take("hanging", path)
        if hangs or self.take("broken", path):
            body = body[: len(body) // 2]
        with self.lock:
            self.sent += len(body)  # before they are sent: the client may ask the moment it has them
        try:
            handler.wfile.write(body)
            handler.wfile.flush()
        except OSError:
            return  # the client has gone
        if hangs:
            self.released.wait()


def close(listener: socket.socket, thread: threading.Thread) -> None:
    """Close what a thread accepts on, after the thread: its number may be the next server's a moment later."""
    with suppress(OSError):  # nobody is connected to a listener; it wakes who accepts all the same
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    assert not thread.is_alive()
    listener.close()
