"""The box's store: what it has, what comes from the controller and from other boxes, what it gives away."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostkit import fetch, files, pull, receive, serve, stock, store
from hostkit.errors import Failure

DATA = random.Random(3).randbytes(3_000_000)
SHA = hashlib.sha256(DATA).hexdigest()
NAME = "thing-1.0-py3-none-any.whl"
FILE = {"filename": NAME, "sha256": SHA, "size": len(DATA)}
TOKEN = "a-token"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "ROOT", str(tmp_path / "store"))
    monkeypatch.setattr(store, "MODELS_ROOT", str(tmp_path / "models/.store"))
    return tmp_path / "store"


def put(root: Path, data: bytes = DATA, name: str = NAME) -> None:
    (root / SHA).mkdir(parents=True, exist_ok=True)
    (root / SHA / name).write_bytes(data)


def send(monkeypatch: pytest.MonkeyPatch, data: bytes, *wanted: dict[str, Any]) -> dict[str, Any]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return receive.run({"files": list(wanted)} if len(wanted) != 1 else wanted[0])


def answer(**more: Any) -> dict[str, Any]:
    return {"got": [], "again": {}, "damaged": [], "busy": [], "holes": {}, **more}


# From the controller


def test_a_file_goes_on_where_it_broke_off(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match=r"2000000 of 3000000 bytes of thing-1\.0-py3-none-any\.whl still to come"):
        send(monkeypatch, DATA[:1_000_000], {**FILE, "offset": 0})
    assert stock.run({"files": [FILE]}) == {"have": [], "parts": {SHA: 1_000_000}, "holes": {}}
    assert send(monkeypatch, DATA[1_000_000:], {**FILE, "offset": 1_000_000}) == answer(got=[SHA])
    assert os.listdir(root / SHA) == [NAME]
    assert (root / SHA / NAME).read_bytes() == DATA
    assert (root / SHA / NAME).stat().st_mode & 0o777 == 0o644
    assert stock.run({"files": [FILE]}) == {"have": [SHA], "parts": {}, "holes": {}}


def test_a_part_of_another_size_is_asked_for_again_and_the_next_file_is_taken(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, DATA[:5], NAME + ".part")
    small = {"filename": "small", "sha256": hashlib.sha256(b"small").hexdigest(), "size": 5, "offset": 0}
    got = send(monkeypatch, DATA[10:] + b"small", {**FILE, "offset": 10}, small)
    assert got == answer(again={SHA: 5}, got=[small["sha256"]])
    assert not (root / SHA / NAME).exists()


def test_damaged_bytes_are_dropped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert send(monkeypatch, DATA[:-1] + b"!", {**FILE, "offset": 0}) == answer(damaged=[SHA])
    assert os.listdir(root / SHA) == []


def test_two_deploys_do_not_write_one_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"""
import sys
from hostkit import store
store.ROOT = {str(root)!r}
with store.held({SHA!r}):
    print("held", flush=True)
    sys.stdin.read()
"""
    other = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None and other.stdout.readline() == b"held\n"
    try:
        assert send(monkeypatch, DATA, {**FILE, "offset": 0}) == answer(busy=[SHA])
        assert pull.run({"files": [{**FILE, "urls": []}]})["busy"] == [SHA]
        assert os.listdir(root / SHA) == []
    finally:
        other.kill()  # whose lock goes with it
        other.wait()
    assert send(monkeypatch, DATA, {**FILE, "offset": 0}) == answer(got=[SHA])


def test_a_controller_that_sends_no_more_is_given_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive, "SILENCE_SECONDS", 0.05)
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", 0) as pipe, os.fdopen(reading, "r") as stdin:
        pipe.write(DATA[:1000])
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(Failure, match="nothing of thing"):
            receive.run({**FILE, "offset": 0})
    assert not (root / SHA / NAME).exists()


def test_a_full_disk_is_said_before_it_is_full(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "free", lambda directory: 2_000_000)
    with pytest.raises(
        files.Full, match=r"no space in .*store for thing-1.0-py3-none-any.whl \(2.9 MiB\): 1.9 MiB are"
    ):
        send(monkeypatch, DATA, {**FILE, "offset": 0})
    with pytest.raises(files.Full):
        pull.run({"files": [{**FILE, "urls": ["http://127.0.0.1:9/"]}]})
    put(root, DATA[:1_500_000], NAME + ".part")  # of which half is there already
    assert send(monkeypatch, DATA[1_500_000:], {**FILE, "offset": 1_500_000}) == answer(got=[SHA])


def test_a_disk_that_others_fill_meanwhile_loses_the_part(root: Path) -> None:
    put(root, DATA[:10], NAME + ".part")
    with pytest.raises(files.Full, match="no space"), files.room(str(root / SHA / (NAME + ".part")), None):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert os.listdir(root / SHA) == []
    with pytest.raises(PermissionError), files.room(str(root / SHA / (NAME + ".part")), None):
        raise PermissionError("something else")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x.part"])
def test_a_name_that_leads_elsewhere(name: str) -> None:
    with pytest.raises(Failure, match="no file of the store"):
        store.path(name, SHA)
    with pytest.raises(Failure, match="no file of the store"):
        store.path(NAME, "../" + SHA[3:])


def test_stock_removes_what_is_damaged_when_it_is_to_check(root: Path) -> None:
    put(root, b"x" * len(DATA))
    assert stock.run({"files": [FILE]})["have"] == [SHA]
    assert stock.run({"files": [FILE], "check": True}) == {"have": [], "parts": {}, "holes": {}}
    assert os.listdir(root / SHA) == []
    put(root)
    assert stock.run({"files": [FILE], "check": True})["have"] == [SHA]


# From another box


@pytest.fixture
def giver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Giver]:
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    found = Giver(tmp_path / "other")
    yield found
    found.http.shutdown()
    found.http.server_close()


class Giver:
    """Another box, which gives what lies in its store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.http = Other(root)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def url(self, path: str = f"{TOKEN}/{SHA}/{NAME}") -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def spec(self, **more: Any) -> dict[str, Any]:
        return {"files": [{**FILE, "urls": [self.url()]}], "peer": True, **more}

    def status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(self.url(path), timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code


class Other(serve.Server):
    def __init__(self, root: Path) -> None:
        super().__init__("127.0.0.1", 0, TOKEN)
        self.root = root

    def file_of(self, target: str) -> str | None:
        """As if its store were this one's."""
        own, store.ROOT = store.ROOT, str(self.root)
        try:
            return super().file_of(target)
        finally:
            store.ROOT = own


def test_a_file_from_another_box_goes_on_where_it_broke_off(root: Path, giver: Giver) -> None:
    put(giver.root)
    put(root, DATA[:2_000_000], NAME + ".part")
    assert pull.run(giver.spec()) == {"got": [SHA], "failed": {}, "busy": []}
    assert (root / SHA / NAME).read_bytes() == DATA
    assert os.listdir(root / SHA) == [NAME]


def test_damaged_files_of_another_box_are_not_taken(root: Path, giver: Giver) -> None:
    put(giver.root, b"x" * len(DATA))
    failed = pull.run(giver.spec())["failed"][SHA]
    assert failed["wrong"] and "not the pinned" in failed["cause"]
    assert TOKEN not in failed["cause"] and f"127.0.0.1:{giver.port}" in failed["cause"]
    assert os.listdir(root / SHA) == []


def test_a_box_that_has_it_not_and_one_that_is_off(root: Path, giver: Giver) -> None:
    failed = pull.run(giver.spec())["failed"][SHA]
    assert not failed["wrong"] and "answers 404" in failed["cause"]
    off = pull.run({"files": [{**FILE, "urls": ["http://127.0.0.1:9/t/x"]}], "peer": True})["failed"][SHA]
    assert "refused" in off["cause"] and not off["wrong"]


def test_the_next_address_is_tried(root: Path, giver: Giver) -> None:
    put(giver.root)
    spec = {"files": [{**FILE, "urls": ["http://127.0.0.1:9/x", giver.url()]}], "peer": True}
    assert pull.run(spec)["got"] == [SHA]


def test_a_source_that_is_too_slow_is_left(
    root: Path, giver: Giver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(giver.root)
    clock = iter(range(0, 100_000, 10))
    monkeypatch.setattr(pull, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    failed = pull.run(giver.spec(least=1e6))["failed"][SHA]
    assert "only" in failed["cause"] and "kB/s" in failed["cause"]
    assert store.part_size(store.path(NAME, SHA)), "what came is kept for the next source"
    assert pull.run(giver.spec(least=1e3))["got"] == [SHA]
    assert '"event": "progress"' in capsys.readouterr().out


def test_a_proxy_is_never_asked_for_another_box(giver: Giver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "example.org")
    put(giver.root)
    assert pull.run(giver.spec())["got"] == [SHA]


def test_only_complete_files_are_given_and_only_for_the_token(giver: Giver) -> None:
    put(giver.root)
    put(giver.root, b"half", "other.whl.part")
    (giver.root / SHA / "link").symlink_to("/etc/passwd")
    (giver.root / "plain").write_text("x")
    assert giver.status(f"{TOKEN}/{SHA}/{NAME}") == 200
    for path in (
        f"wrong/{SHA}/{NAME}",
        f"{SHA}/{NAME}",
        f"{TOKEN}/{SHA}/other.whl.part",
        f"{TOKEN}/{SHA}/link",
        f"{TOKEN}/{SHA}/",
        f"{TOKEN}/{SHA}",
        f"{TOKEN}/plain",
        f"{TOKEN}/../../etc/passwd",
        f"{TOKEN}/{SHA}/..%2f..%2fplain",
        f"{TOKEN}/{SHA}/%00",
        "",
    ):
        assert giver.status(path) == 404, path


def test_the_server_ends_when_nobody_asks(giver: Giver) -> None:
    """But not while a file is on its way."""
    ended = threading.Thread(target=giver.http.end_when_idle, args=(0, 0.01))
    with giver.http.at_work():
        ended.start()
        ended.join(0.2)
        assert ended.is_alive()
    ended.join(30)
    assert not ended.is_alive()


def test_the_first_known_port_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve.Server("127.0.0.1", 0, TOKEN) as taken:
        monkeypatch.setattr(serve, "PORTS", (taken.server_address[1], 0))
        with serve.listen("127.0.0.1", TOKEN) as other:
            assert other.server_address[1] != taken.server_address[1]
        monkeypatch.setattr(serve, "PORTS", (taken.server_address[1],))
        with pytest.raises(Failure, match=r"cannot listen on 127\.0\.0\.1"):
            serve.listen("127.0.0.1", TOKEN)
