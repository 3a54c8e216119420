"""A stand-in of the models' hub over HTTP, with all the ways in which hubs, their storage and mirrors fail.

It answers what huggingface_hub asks for: facts of a repository at a commit, and files by `resolve`, the large ones by a
redirect to a storage with an address of its own, as the hub does. A mirror is a second one with the same repositories.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

from hostkit.ranges import parse_range

LARGE = 1 << 16  # bytes from which on a file is in the storage; the hub goes by its name, too
BLOCK = 1 << 16
CONTROL = "/-/"  # POST /-/moods, GET /-/counts: for who runs it as a process


@dataclass
class Mood:
    """One way to fail.

    + do: `stall` (no further byte, the connection stays), `cut` (the connection ends), `flip` (one bit is another),
      `short` (the file ends `at` bytes in, and says that this is all), `status` (an error), `slow` (`rate` bytes/s)
    + path: what the request's path contains
    + at: byte of the file from which on it happens
    + times: so many answers
    """

    do: Literal["stall", "cut", "flip", "short", "status", "slow"]
    path: str = ""
    at: int = 0
    times: int = 1
    status: int = 503
    retry_after: int | None = None
    rate: float = 1 << 20
    large_only: bool = True  # what the storage sends; else also answers of the hub itself


@dataclass
class Repo:
    """One repository at one commit. + token: who has another is refused; + gated: the way in which he is"""

    files: dict[str, bytes]
    commit: str
    token: str = ""
    gated: bool = False

    def __post_init__(self) -> None:
        self.sums = {path: hashlib.sha256(data).hexdigest() for path, data in self.files.items()}

    def etag(self, path: str) -> str:
        """The hub's: sha256 of what is in the storage, git's hash of what is in the repository itself."""
        data = self.files[path]
        if len(data) >= LARGE:
            return self.sums[path]
        return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()

    def sibling(self, path: str) -> dict[str, Any]:
        size = len(self.files[path])
        lfs = {"sha256": self.sums[path], "size": size, "pointerSize": 135} if size >= LARGE else None
        return {"rfilename": path, "size": size, "blobId": self.etag(path)} | ({"lfs": lfs} if lfs else {})


@dataclass
class Hub:
    """+ repos: by `owner/name`
    + sent: bytes by path (`owner/name/path`); requests: answers by method and path
    + leaked: whether the storage ever got a token
    """

    repos: dict[str, Repo] = field(default_factory=dict)
    moods: list[Mood] = field(default_factory=list)
    bind: str = "127.0.0.1"
    ports: tuple[int, int] = (0, 0)
    sent: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    leaked: bool = False

    def __post_init__(self) -> None:
        self.released, self.lock = threading.Event(), threading.Lock()
        self.servers = [self._serve(port, storage=storage) for port, storage in zip(self.ports, (0, 1), strict=True)]
        self.url, self.storage = (f"http://{self.bind}:{server.server_port}" for server in self.servers)

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def _serve(self, port: int, *, storage: int) -> ThreadingHTTPServer:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                Answer(hub, self, storage=bool(storage)).give()

            do_HEAD = do_GET

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                hub.moods = [Mood(**each) for each in json.loads(body)]
                Answer(hub, self, storage=False).json({})

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer((self.bind, port), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    def take(self, kinds: tuple[str, ...], path: str, start: int, end: int, *, large: bool) -> Mood | None:
        """The next mood for an answer with these bytes of a file, if there is one left."""
        with self.lock:
            for mood in self.moods:
                fits = mood.do in kinds and mood.path in path and (large or not mood.large_only)
                if fits and mood.times and (mood.do in ("status", "slow", "short") or start <= mood.at < end):
                    mood.times -= 1
                    return mood
        return None

    def count(self, path: str, size: int) -> None:
        with self.lock:
            self.sent[path] += size

    @property
    def counts(self) -> dict[str, Any]:
        with self.lock:
            return {"sent": dict(self.sent), "requests": dict(self.requests), "leaked": self.leaked}


@dataclass
class Answer:
    """To one request."""

    hub: Hub
    request: BaseHTTPRequestHandler
    storage: bool

    def give(self) -> None:
        path = unquote(urlsplit(self.request.path).path)
        with self.hub.lock:
            self.hub.requests[f"{self.request.command} {path}"] += 1
            self.hub.leaked |= self.storage and "Authorization" in self.request.headers
        if self.storage:
            repo, _, rest = path.removeprefix("/").partition("//")
            self.file(repo, rest, self.hub.repos[repo])
        elif path == f"{CONTROL}counts":
            self.json(self.hub.counts)
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path):
            self.api(found[1], found[2], found[3] or "main")
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.resolve(found[1], found[2], found[3])
        else:
            self.error(404)

    def known(self, name: str, revision: str) -> Repo | None:
        """A repository that may be read at this revision; None when it was answered that it may not."""
        if mood := self.hub.take(("status",), self.request.path, 0, 1, large=False):
            self.error(mood.status, retry_after=mood.retry_after)
            return None
        repo = self.hub.repos.get(name)
        if repo is None:
            self.error(401, "RepoNotFound")
        elif repo.token and self.request.headers.get("Authorization") != f"Bearer {repo.token}":
            self.error(403 if repo.gated else 401, "GatedRepo" if repo.gated else "RepoNotFound")
        elif revision not in ("main", repo.commit):
            self.error(404, "RevisionNotFound")
        else:
            return repo
        return None

    def api(self, name: str, what: str | None, revision: str) -> None:
        repo = self.known(name, revision)
        if repo is None:
            return
        files = [repo.sibling(path) for path in repo.files]
        if what == "tree":
            tree = ({"type": "file", "path": each["rfilename"], "oid": each["blobId"], **each} for each in files)
            self.json(list(tree))
        else:
            about = {"id": name, "modelId": name, "private": bool(repo.token), "gated": "auto" if repo.gated else False}
            self.json({**about, "sha": repo.commit, "tags": [], "downloads": 0, "likes": 0, "siblings": files})

    def resolve(self, name: str, revision: str, path: str) -> None:
        repo = self.known(name, revision)
        if repo is None:
            return
        if path not in repo.files:
            self.error(404, "EntryNotFound", commit=repo.commit)
        elif len(repo.files[path]) < LARGE:
            self.file(name, path, repo)
        else:
            head = self.head(302, 0, commit=repo.commit)
            head["X-Linked-Size"] = str(len(repo.files[path]))
            head["X-Linked-Etag"] = f'"{repo.etag(path)}"'
            head["Location"] = f"{self.hub.storage}/{name}//{quote(path)}"
            self.send(302, head)

    def file(self, name: str, path: str, repo: Repo) -> None:
        data, where = repo.files[path], f"{name}/{path}"
        body = self.request.command == "GET"
        large = len(data) >= LARGE
        if body and (mood := self.hub.take(("status",), where, 0, 1, large=large)):
            self.error(mood.status, retry_after=mood.retry_after)
            return
        if body and (mood := self.hub.take(("short",), where, 0, 1, large=large)):
            data = data[: mood.at]
        try:
            part = parse_range(self.request.headers.get("Range"), len(data))
        except ValueError:
            self.send(416, {"Content-Range": f"bytes */{len(data)}", "Content-Length": "0"})
            return
        start, length = part or (0, len(data))
        head = self.head(206 if part else 200, length, commit=repo.commit)
        head["ETag"] = f'"{repo.etag(path)}"'
        if part:
            head["Content-Range"] = f"bytes {start}-{start + length - 1}/{len(data)}"
        self.send(206 if part else 200, head)
        if body:
            self.stream(where, data, start, start + length, large=large)

    def stream(self, where: str, data: bytes, start: int, end: int, *, large: bool) -> None:
        trouble = self.hub.take(("stall", "cut", "flip"), where, start, end, large=large)
        slow = self.hub.take(("slow",), where, start, end, large=large)
        at = start
        while at < end:
            stop = min(at + BLOCK, end)
            if trouble and at <= trouble.at < stop:
                if trouble.do == "flip":
                    data = data[: trouble.at] + bytes([data[trouble.at] ^ 1]) + data[trouble.at + 1 :]
                elif at == trouble.at:
                    if trouble.do == "stall":
                        self.hub.released.wait()
                    self.request.close_connection = True
                    return
                else:
                    stop = trouble.at
            self.hub.count(where, stop - at)  # before they are sent: the client may ask the moment it has them
            try:
                self.request.wfile.write(data[at:stop])
            except OSError:
                self.request.close_connection = True
                return  # the client has gone
            if slow and self.hub.released.wait((stop - at) / slow.rate):
                return
            at = stop

    def head(self, status: int, length: int, commit: str) -> dict[str, str]:
        kind = "text/plain" if status == HTTPStatus.FOUND else "application/octet-stream"
        return {"Content-Type": kind, "Content-Length": str(length), "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}

    def json(self, found: Any) -> None:
        body = json.dumps(found).encode()
        self.send(200, {"Content-Type": "application/json", "Content-Length": str(len(body))}, body)

    def error(self, status: int, code: str = "", commit: str = "", retry_after: int | None = None) -> None:
        said = {"X-Error-Code": code, "X-Error-Message": code, "X-Repo-Commit": commit}
        said |= {} if retry_after is None else {"Retry-After": str(retry_after)}
        self.send(status, {"Content-Length": "0", **{name: value for name, value in said.items() if value}})

    def send(self, status: int, head: dict[str, str], body: bytes = b"") -> None:
        self.request.send_response(status)
        for name, value in head.items():
            self.request.send_header(name, value)
        self.request.end_headers()
        if self.request.command != "HEAD":
            self.request.wfile.write(body)


def read(root: Path) -> dict[str, Repo]:
    """Repositories in folders `owner/name/commit`, one commit each."""
    found = {}
    for folder in sorted(root.glob("*/*/*")):
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        found[str(folder.parent.relative_to(root))] = Repo(files, folder.name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folders owner/name/commit")
    parser.add_argument("--bind", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--storage-port", type=int, required=True)
    parser.add_argument("--token", default="", help="a file that holds the token that is demanded")
    given = parser.parse_args()
    repos = read(given.root)
    for repo in repos.values():
        repo.token = Path(given.token).read_text().strip() if given.token else ""
    with Hub(repos, bind=given.bind, ports=(given.port, given.storage_port)):
        print("ready", flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
