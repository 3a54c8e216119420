"""A hub over HTTP, and a plain server of files: HEAD, ranges, redirects to a store, lists of files, failures."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "c0ffee" + "0" * 34
LARGE = 2000  # bytes from which on a file is in the store


@dataclass
class Site:
    """A server on a free port of this machine.

    + files: content by path
    + repos: files of a repository by its name; large ones are redirected to `/store`
    + statuses: what is answered in place of a file or a list; codes: the hub's own word for why
    + cuts: so many answers end in the middle; busy: so many are 503
    + ranges: whether they are understood
    + asked: method and path of all requests, logins: their tokens
    """

    files: dict[str, bytes] = field(default_factory=dict)
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    cuts: int = 0
    busy: int = 0
    ranges: bool = True
    sent: int = 0
    asked: list[str] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self, True)

            def do_HEAD(self) -> None:
                site.answer(self, False)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def listing(self, repo: str) -> dict[str, Any]:
        """What the hub's API tells of a repository."""
        siblings: list[dict[str, Any]] = []
        for name, data in self.repos[repo].items():
            blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
            its: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": blob}
            if len(data) >= LARGE:
                its["lfs"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 134}
            siblings.append(its)
        return {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings, "tags": []}

    def answer(self, handler: BaseHTTPRequestHandler, body: bool) -> None:
        path = handler.path.partition("?")[0]
        handler.close_connection = True
        self.asked.append(f"{handler.command} {path}")
        self.logins.append(handler.headers.get("Authorization"))
        status = self.statuses.get(path)
        if self.busy:
            self.busy -= 1
            status = 503
        if status:
            handler.send_response(status)
            if code := self.codes.get(path):
                handler.send_header("X-Error-Code", code)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        for repo, files in self.repos.items():
            if path.startswith(f"/api/models/{repo}"):
                self._send(handler, json.dumps(self.listing(repo)).encode(), body, "application/json")
                return
            if path.startswith(f"/{repo}/resolve/"):
                name = path.removeprefix(f"/{repo}/resolve/").partition("/")[2]
                self._resolve(handler, repo, name, files.get(name), body)
                return
            if path.startswith(f"/store/{repo}/"):
                self._send(handler, files[path.removeprefix(f"/store/{repo}/")], body)
                return
        if path in self.files:
            self._send(handler, self.files[path], body)
        else:
            handler.send_error(404)

    def _resolve(self, handler: BaseHTTPRequestHandler, repo: str, name: str, data: bytes | None, body: bool) -> None:
        if data is None:
            handler.send_error(404)
        elif len(data) >= LARGE:
            handler.send_response(302)
            handler.send_header("Location", f"{self.url}/store/{repo}/{name}")
            handler.send_header("X-Linked-Size", str(len(data)))
            handler.send_header("X-Linked-Etag", f'"{hashlib.sha256(data).hexdigest()}"')
            handler.send_header("Content-Length", "0")
            handler.end_headers()
        else:
            self._send(handler, b"damaged" + data[7:] if name in self.damaged else data, body)

    def _send(self, handler: BaseHTTPRequestHandler, data: bytes, body: bool, kind: str = "text/plain") -> None:
        wanted = handler.headers.get("Range") if self.ranges else None
        first, _, last = (wanted or "").removeprefix("bytes=").partition("-")
        start, end = int(first or 0), min(int(last or len(data)) + 1, len(data))
        part = data[start:end] if wanted else data
        handler.send_response(206 if wanted else 200)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(part)))
        if wanted:
            handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        handler.end_headers()
        if body:
            if self.cuts:
                self.cuts -= 1
                part = part[: len(part) // 2]
            self.sent += len(part)
            handler.wfile.write(part)
