"""The server of the unit `gpufleet-share`: the complete files of the box's store, for who knows the token.

It has no rights but to read files that everybody may read, and ends by itself when nobody asks any more.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import socketserver
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Iterator, Optional
from urllib.parse import unquote

from hostkit import files, ranges, store
from hostkit.errors import Failure

IDLE_SECONDS = 600
PORTS = tuple(range(7478, 7488)) + (0,)  # known ones first, for firewalls; then any
TOKEN, LISTEN, FOLDER = "GPUFLEET_SHARE_TOKEN", "GPUFLEET_SHARE_LISTEN", "RUNTIME_DIRECTORY"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds that a reader may do nothing
    server: "Server"

    def do_GET(self) -> None:
        with self.server.at_work():
            path = self.server.file_of(self.path)
            if path is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            try:
                file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")
            except OSError:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            with file:
                ranges.answer(self, file, "application/octet-stream", body=True)

    def log_message(self, *_: object) -> None:
        pass  # the path holds the token


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Not the standard library's HTTPServer, which asks the name service for its own name first."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, port: int, token: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.token = token
        self.lock = threading.Lock()
        self.busy = 0
        self.last = time.monotonic()
        super().__init__((address, port), Handler)

    def file_of(self, target: str) -> Optional[str]:
        """The complete file that `/<token>/<sha256>/<filename>` means; None for everything else."""
        words = [unquote(word) for word in target.split("/")]
        if len(words) != 4 or words[0] or not hmac.compare_digest(words[1].encode(), self.token.encode()):
            return None
        try:
            for place in (store.WHEELS, store.MODELS):
                if store.has(words[3], words[2], place=place):
                    return store.path(words[3], words[2], place)
        except (Failure, ValueError):
            pass
        return None

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Keeps the server from taking itself for idle while a file is on its way."""
        with self.lock:
            self.busy += 1
        try:
            yield
        finally:
            with self.lock:
                self.busy -= 1
                self.last = time.monotonic()

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a reader that went away

    def end_when_idle(self, seconds: float, look_seconds: float = 5) -> None:
        while True:
            time.sleep(look_seconds)
            with self.lock:
                idle = not self.busy and time.monotonic() - self.last >= seconds
            if idle:
                self.shutdown()
                return


def run(spec: dict) -> dict:
    """Serve until nobody has asked for IDLE_SECONDS; the port is told in the unit's runtime directory."""
    server = listen(os.environ[LISTEN], os.environ[TOKEN])
    files.write(os.path.join(os.environ[FOLDER], "port"), str(server.server_address[1]).encode())
    threading.Thread(target=server.end_when_idle, args=(IDLE_SECONDS,), daemon=True).start()
    server.serve_forever()
    return {}


def listen(address: str, token: str) -> Server:
    """A server on the first port that is free. Raises Failure when there is none."""
    reason: Optional[OSError] = None
    for port in PORTS:
        try:
            return Server(address, port, token)
        except OSError as error:
            reason = error
    raise Failure("cannot listen on {}: {}".format(address, reason), "check the box's network")
