"""The lab's file server, a process of its own: everything boxes fetch, on the address of the bridge only."""

from __future__ import annotations

import argparse
import functools
import os
import re
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and length of a single-range header; None when the whole file is to be sent.

    Raises ValueError when nothing of the file lies in the range.
    """
    wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if wanted is None or wanted.groups() == ("", ""):
        return None
    first, last = wanted.groups()
    if first == "":
        length = min(int(last), size)
        start = size - length
    else:
        start = int(first)
        length = (min(int(last), size - 1) if last else size - 1) - start + 1
    if start >= size or length <= 0:
        raise ValueError(header)
    return start, length


class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections: an installation fetches a hundred files

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        path = Path(self.translate_path(self.path))
        if path.is_dir():
            (super().do_GET if body else super().do_HEAD)()
            return
        try:
            file = path.open("rb")
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with file:
            self._send(file, path, body=body)

    def _send(self, file: BinaryIO, path: Path, *, body: bool) -> None:
        status = os.fstat(file.fileno())
        try:
            part = parse_range(self.headers.get("Range"), status.st_size)
        except ValueError:
            self.send_error(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            return
        start, length = part or (0, status.st_size)
        self.send_response(HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Last-Modified", self.date_time_string(int(status.st_mtime)))
        if part:
            self.send_header("Content-Range", f"bytes {start}-{start + length - 1}/{status.st_size}")
        self.end_headers()
        if body and length:
            self.wfile.flush()
            self.connection.sendfile(file, start, length)


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--bind", required=True)
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    handler = functools.partial(Handler, directory=str(given.root))
    Server((given.bind, given.port), handler).serve_forever()


if __name__ == "__main__":
    main()
