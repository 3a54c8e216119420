"""The kit's verb `doctor`: apt's locks and leavings by its files, addresses by HEAD; nothing is changed."""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostkit import __main__ as kit
from hostkit import apt_state, doctor, reachable
from hostkit.roots import Roots
from tests.unit.boxes import put

URIS = "'http://deb.example/debian/dists/bookworm/InRelease' deb.example_debian 0 \n'file:/x/InRelease' x 0\nE: odd\n"
PROXY = 'Acquire::http::Proxy "http://proxy.example:3128";\nAcquire::https::Proxy "DIRECT";\n'


def test_a_lock_that_another_process_holds_is_seen_and_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "var/lib/dpkg/lock-frontend"
    put(tmp_path, "/var/lib/dpkg/lock-frontend", "")
    assert apt_state.holder(str(path)) is None and apt_state.holder(str(path) + "-none") is None
    code = (
        "import fcntl, sys; handle = open(sys.argv[1], 'w'); fcntl.lockf(handle, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout and other.stdout.readline() == b"held\n"
        assert apt_state.holder(str(path)) == other.pid
        found = list(apt_state.locks(Roots(str(tmp_path))))
        assert [(lock["path"], lock["pid"]) for lock in found] == [("/var/lib/dpkg/lock-frontend", other.pid)]
        assert other.stdin
        other.stdin.close()
    with open(path, "w") as handle:  # it is free for us: the question has not taken it
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_dpkg_left_half_done(tmp_path: Path) -> None:
    states = {
        "fine": "install ok installed",
        "half": "install ok half-configured",
        "gone": "deinstall ok config-files",
        "again": "install reinstreq installed",
        "waits": "install ok triggers-pending",
        "held": "hold ok unpacked",
    }
    text = "\n".join(f"Package: {name}\nStatus: {state}\nVersion: 1\n" for name, state in states.items())
    put(tmp_path, "/var/lib/dpkg/status", text)
    root = Roots(str(tmp_path), {"apt-get": URIS, "apt-config": PROXY})
    assert apt_state.read(root) == {
        "locks": [],
        "broken": ["again", "half", "held"],
        "interrupted": False,
        "addresses": ["http://deb.example/debian/dists/bookworm/InRelease", "file:/x/InRelease"],
        "proxies": {"http": "http://proxy.example:3128"},
        "said": None,
    }
    put(tmp_path, "/var/lib/dpkg/updates/0003", "")
    assert apt_state.read(root)["interrupted"] is True


def test_sources_that_apt_cannot_read_are_told_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def output(self: Roots, *arguments: str) -> str:
        raise OSError("apt-get: E: Malformed entry 1 in list file /etc/apt/sources.list")

    monkeypatch.setattr(Roots, "output", output)
    found = apt_state.read(Roots(str(tmp_path)))
    assert "Malformed entry 1" in found["said"] and found["addresses"] == []


def test_a_box_without_apt(tmp_path: Path) -> None:
    found = apt_state.read(Roots(str(tmp_path)))
    assert not any(found.values())


class Answers(http.server.BaseHTTPRequestHandler):
    missing: tuple[str, ...] = ("/gone",)

    def do_HEAD(self) -> None:
        self.server.asked.append((self.command, self.path))  # type: ignore[attr-defined]
        self.send_response(404 if self.path in self.missing else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    found.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def test_addresses_are_asked_by_head_and_told_apart(
    server: http.server.ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    at = f"http://127.0.0.1:{server.server_address[1]}"
    with contextlib.closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        urls = [f"{at}/there", f"{at}/gone", nobody, "http://no-such-name.invalid/", "http://[bad/", f"{at}/there"]
        found = reachable.ask(urls, seconds=5)
    assert [(answer["status"], answer["kind"]) for answer in found.values()] == [
        (200, None),
        (404, None),
        (None, "connection"),
        (None, "name"),
        (None, "address"),
    ]
    assert sorted(server.asked) == [("HEAD", "/gone"), ("HEAD", "/there")]  # type: ignore[attr-defined]
    assert reachable.ask([]) == {}


def test_a_proxy_is_asked_in_its_place(server: http.server.ThreadingHTTPServer) -> None:
    proxy = f"http://127.0.0.1:{server.server_address[1]}"
    found = reachable.one("http://deb.invalid/InRelease", {"http": proxy})
    assert found["status"] == 200
    assert server.asked == [("HEAD", "http://deb.invalid/InRelease")]  # type: ignore[attr-defined]


def test_a_server_that_is_silent_costs_its_time_and_no_more() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        found = reachable.one(f"http://127.0.0.1:{silent.getsockname()[1]}/", seconds=0.2)
    assert (found["status"], found["kind"]) == (None, "time")


def test_the_verb_waits_for_no_lock_and_asks_what_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "doctor" in kit.UNLOCKED
    state = {
        "addresses": ["http://deb.example/x/InRelease", "file:/y", "cdrom:z"],
        "proxies": {"http": "http://p.example/"},
    }
    asked: list[object] = []

    def ask(urls: list[str], proxies: object = None) -> dict[str, dict[str, int]]:
        if urls:
            asked.append((urls, proxies))
        return {url: {"status": 200} for url in urls}

    monkeypatch.setattr(apt_state, "read", lambda roots: state)
    monkeypatch.setattr(reachable, "ask", ask)
    assert set(doctor.run({"addresses": ["http://a/"], "apt": True})["addresses"]) == {
        "http://a/",
        "http://deb.example/x/InRelease",
    }
    assert asked == [(["http://a/"], None), (["http://deb.example/x/InRelease"], {"http": "http://p.example/"})]
    assert set(doctor.run({"addresses": [], "apt": False})["addresses"]) == set()


def test_of_an_apt_source_only_what_apt_begins_with_is_asked(
    server: http.server.ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its list of files names also such as the source does not have; and an old one has no InRelease."""
    at = f"http://127.0.0.1:{server.server_address[1]}"
    uris = [f"{at}/new/InRelease", f"{at}/new/Packages.xz", f"{at}/old/InRelease", f"{at}/gone/InRelease"]
    state = {"addresses": uris, "proxies": {}, "locks": [], "broken": [], "interrupted": False, "said": None}
    monkeypatch.setattr(apt_state, "read", lambda roots: state)
    monkeypatch.setattr(Answers, "missing", ("/old/InRelease", "/gone/InRelease", "/gone/Release"))
    found = doctor.run({"addresses": [], "apt": True})["addresses"]
    assert {url: told["status"] for url, told in found.items()} == {uris[0]: 200, uris[2]: 200, uris[3]: 404}
