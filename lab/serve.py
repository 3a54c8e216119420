"""The lab's file server, a process of its own: everything boxes fetch, on the address of the bridge only."""

from __future__ import annotations

import argparse
import functools
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from hostkit import ranges


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
            ranges.answer(self, file, self.guess_type(str(path)), body=body)


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
