"""Downloads that resume and are checked; the box's lock; programs that fail."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hostkit import box_lock, fetch, shell
from hostkit.errors import Failure

DATA = bytes(range(256)) * 4000
SHA = hashlib.sha256(DATA).hexdigest()


class Server:
    """Serves DATA, with ranges; breaks off after `stall` bytes as often as `stalls` says."""

    def __init__(self) -> None:
        self.sent = 0
        self.stalls = 0
        self.data = DATA
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if "missing" in self.path:
                    self.send_error(404)
                    return
                asked = self.headers.get("Range")
                start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
                if start >= len(owner.data):
                    self.send_error(416)
                    return
                body = owner.data[start:]
                self.send_response(206 if asked else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if owner.stalls:
                    owner.stalls -= 1
                    body = body[: len(body) // 2]
                owner.sent += len(body)  # before they are sent: the client may ask the moment it has them
                self.wfile.write(body)
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/file"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    found = Server()
    yield found
    found.http.shutdown()
    found.http.server_close()


def test_a_download_goes_on_where_it_broke_off(server: Server, tmp_path: Path) -> None:
    server.stalls = 3
    assert fetch.fetch_file(server.url, str(tmp_path / "f"), SHA, len(DATA))
    assert (tmp_path / "f").read_bytes() == DATA
    assert server.sent == len(DATA)


def test_what_is_there_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    fetch.fetch_file(server.url, str(tmp_path / "f"), SHA, len(DATA))
    assert not fetch.fetch_file(server.url, str(tmp_path / "f"), SHA, len(DATA))
    assert server.sent == len(DATA)


def test_a_wrong_hash_is_never_put_in_place(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="not the pinned"):
        fetch.fetch_file(server.url, str(tmp_path / "f"), "0" * 64, len(DATA))
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_is_longer_than_the_file_is_dropped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(DATA + b"x")
    assert fetch.fetch_file(server.url, str(tmp_path / "f"), SHA, len(DATA))


def test_a_missing_file_and_a_dead_server_say_so(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="answers 404"):
        fetch.fetch_file(server.url + "/missing", str(tmp_path / "f"), SHA)
    with pytest.raises(Failure, match="cannot fetch"):
        fetch.fetch_file("http://127.0.0.1:9/x", str(tmp_path / "f"), SHA)


def test_one_change_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with box_lock.box_lock("runtime", path):
        with pytest.raises(Failure, match=r"still running on this box \(gpufleet runtime, pid"):
            with box_lock.box_lock("apt", path, wait_seconds=0):
                pass
    with box_lock.box_lock("apt", path, wait_seconds=0):
        pass


def test_what_was_cut_off_is_finished_however_long_another_change_takes(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    got = threading.Event()

    def wait() -> None:
        with box_lock.box_lock("resume", path, wait_seconds=0):
            got.set()

    waiting = threading.Thread(target=wait, daemon=True)
    with box_lock.box_lock("activate", path):
        waiting.start()
        waiting.join(0.7)
        assert waiting.is_alive() and not got.is_set()
    waiting.join(10)
    assert got.is_set()


def test_the_lock_is_held_until_the_last_child_is_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    script = f"""
import subprocess, sys
from hostkit import box_lock
with box_lock.box_lock("runtime", {path!r}):
    child = subprocess.Popen(["sleep", "30"], close_fds=False)
    print(child.pid, flush=True)
    sys.stdin.read()
"""
    holder = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    holder.kill()
    holder.wait()
    try:
        with pytest.raises(Failure), box_lock.box_lock("apt", path, wait_seconds=0):
            pass
    finally:
        os.kill(child, 9)
    with box_lock.box_lock("apt", path, wait_seconds=10):
        pass


def test_a_program_that_fails_or_is_missing(tmp_path: Path) -> None:
    with pytest.raises(shell.Ended) as caught:
        shell.run(["sh", "-c", "echo one; echo two >&2; exit 3"])
    assert (caught.value.status, caught.value.tail) == (3, "one\ntwo")
    with pytest.raises(Failure, match="no-such-program is not installed"):
        shell.run(["no-such-program"])
    with pytest.raises(Failure, match="did not end within"):
        shell.run(["sleep", "30"], timeout=0.1)
