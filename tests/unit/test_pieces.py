"""Large files piece by piece: what is damaged comes again, what is good stays, whatever comes between."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hostkit import fetch, files, model, pieces, pull, receive, serve, stock, store
from hostkit.errors import Failure

PIECE = 1000
DATA = os.urandom(10_500)  # eleven pieces, the last shorter
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


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
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


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    found = Server()
    yield found
    found.http.shutdown()
    found.http.server_close()


# What is damaged on the box


def test_a_flipped_bit_costs_its_piece_only(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    box.put(flipped(4_321))
    assert box.look()["have"] == [SHA], "without reading it nobody knows"
    assert box.look(check=True) == {"have": [], "parts": {SHA: 9_500}, "holes": {SHA: [[4000, 1000]]}}
    assert not box.path.exists(), "it has lost its name"
    assert "was damaged on this box" in capsys.readouterr().out
    assert box.look(check=True)["holes"] == {SHA: [[4000, 1000]]}, "once more says the same"
    assert box.send(DATA[4000:5000], holes=[[4000, 1000]])["got"] == [SHA]
    assert box.whole()
    assert box.look(check=True) == {"have": [SHA], "parts": {}, "holes": {}}


def test_what_a_service_has_open_is_never_written_to(box: Box) -> None:
    served = box.models / "m/r1" / NAME
    bad = flipped(10, 10_499)
    box.put(bad)
    served.parent.mkdir(parents=True)
    os.link(box.path, served)
    files.complete(str(served.parent), {})
    with served.open("rb") as open_there:
        holes = box.look(check=True)["holes"][SHA]
        assert holes == [[0, 1000], [10_000, 500]]
        assert box.send(DATA[:1000] + DATA[10_000:], holes=holes)["got"] == [SHA]
        assert open_there.read() == bad == served.read_bytes()
    assert box.whole()
    assert not files.is_complete(str(served.parent)), "the next deploy of this box mends it"


def test_neighbouring_pieces_are_one_hole_and_a_file_cut_short_lacks_its_end(box: Box) -> None:
    box.put(flipped(0, 999, 1000, 2999)[:-1600])
    holes = box.look(check=True)["holes"][SHA]
    assert holes == [[0, 3000], [8000, 2500]]
    assert box.send(DATA[:3000] + DATA[8000:], holes=holes)["got"] == [SHA] and box.whole()


def test_a_file_that_is_too_long_is_cut(box: Box) -> None:
    box.put(DATA + b"more")
    assert box.look(check=True)["have"] == [SHA] and box.whole()


def test_a_file_of_which_nothing_is_good_is_removed(box: Box) -> None:
    box.put(b"x" * len(DATA))
    assert box.look(check=True) == {"have": [], "parts": {}, "holes": {}} and box.names() == []


def test_a_sector_that_cannot_be_read_is_a_hole(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.put(DATA)
    real = pieces.blocks

    def blocks(handle: Any, length: int) -> Iterator[bytes]:
        at = handle.tell()
        if at <= 4321 < at + length and handle.name == str(box.path):
            raise OSError(errno.EIO, "Input/output error")
        yield from real(handle, length)

    def sha256(at: str) -> str:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(pieces, "blocks", blocks)
        patch.setattr(pieces, "sha256", sha256)
        assert box.look(check=True)["holes"] == {SHA: [[4000, 1000]]}
    assert box.send(DATA[4000:5000], holes=[[4000, 1000]])["got"] == [SHA] and box.whole()


def test_pieces_that_cannot_be_of_this_file_are_not_used(box: Box) -> None:
    box.put(flipped(3))
    assert box.look(check=True, file={"pieces": SUMS[:-1]}) == {"have": [], "parts": {}, "holes": {}}
    assert box.names() == []


def test_no_room_for_the_copy_is_said_with_the_disk(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.put(flipped(3))
    full = os.statvfs_result((1, 1, 1, 1, 1, 5000, 5000, 5000, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(Failure, match=rf"file system of .*{SHA} \(mounted at .*\) has 0 MiB free; a copy of {NAME}"):
        box.look(check=True)
    assert not store.is_whole(str(box.path)), "and it is not taken for whole meanwhile"


def test_the_room_for_what_lacks_is_asked_for_before(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    big = {"filename": "b", "sha256": "b" * 64, "size": 5 << 30, "place": "models"}
    spec = {"files": [FILE, big], "check": True, "spare": 1 << 30, "what": "the-model"}
    block = 1 << 20
    free = 6 * 1024
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((block, block, 1, free, free, 1, 1, 1, 0, 255)))
    with pytest.raises(Failure, match=r"models/\.store \(mounted at .*\) has 6144 MiB free; the-model needs 6144 MiB"):
        stock.run(spec)
    box.put(DATA)
    assert stock.run(spec)["have"] == [SHA]


# What comes damaged


def test_what_comes_damaged_from_the_controller_keeps_what_is_good(box: Box) -> None:
    answer = box.send(flipped(2500))
    assert (answer["damaged"], answer["holes"]) == ([SHA], {SHA: [[2000, 1000]]})
    assert box.look()["parts"] == {SHA: 9_500}
    answer = box.send(flipped(1, data=DATA[2000:3000]), holes=[[2000, 1000]])
    assert (answer["damaged"], answer["holes"]) == ([SHA], {SHA: [[2000, 1000]]})
    assert box.send(DATA[2000:3000], holes=[[2000, 1000]])["got"] == [SHA] and box.whole()


def test_holes_that_the_controller_does_not_know_are_told(box: Box) -> None:
    box.damaged(5)
    answer = box.send(DATA, offset=0)
    assert (answer["again"], answer["holes"]) == ({SHA: len(DATA)}, {SHA: [[0, 1000]]})
    answer = box.send(DATA[:2000], holes=[[0, 2000]])
    assert (list(answer["again"]), answer["holes"]) == ([SHA], {SHA: [[0, 1000]]})


def test_what_broke_off_goes_on_at_the_piece_it_was_at(box: Box) -> None:
    holes = box.damaged(0, 1000, 2000, 7000)
    assert holes == [[0, 3000], [7000, 1000]]
    with pytest.raises(Failure, match="still to come"):
        box.send(DATA[:2400], holes=holes)
    assert box.look(check=True)["holes"] == {SHA: [[2000, 1000], [7000, 1000]]}
    with pytest.raises(Failure, match="still to come"):
        box.send(flipped(0, data=DATA[2000:3000]), holes=[[2000, 1000], [7000, 1000]])
    assert box.look(check=True)["holes"] == {SHA: [[2000, 1000], [7000, 1000]]}, "it came damaged"


def test_holes_are_filled_by_range_from_another_box(box: Box, server: Server) -> None:
    box.damaged(1500, 2500, 10_400)
    server.cut = 1
    found = pull.run(server.spec(peer=False))
    assert found["got"] == [SHA] and box.whole(), found
    assert server.lengths() == [2000, 1000, 500]


def test_a_download_with_a_wrong_hash_gets_only_what_is_wrong_again(box: Box, server: Server) -> None:
    box.put(flipped(1, 4001)[:6000], box.path.with_name(NAME + ".part"))  # a power cut left it so
    assert pull.run(server.spec())["got"] == [SHA] and box.whole()
    assert server.asked == ["bytes=6000-", "bytes=0-999", "bytes=4000-4999"]


def test_a_box_that_gives_a_damaged_piece_is_left_for_one_that_does_not(box: Box, server: Server) -> None:
    server.data = flipped(3333)
    failed = pull.run(server.spec())["failed"][SHA]
    assert failed["wrong"] and "another hash" in failed["cause"] and server.url not in failed["cause"]
    assert box.look()["holes"] == {SHA: [[3000, 1000]]}
    server.data, server.asked = DATA, []
    assert pull.run(server.spec())["got"] == [SHA] and box.whole()
    assert server.asked == ["bytes=3000-3999"]


def test_a_server_without_ranges_sends_it_all_and_the_holes_are_filled(box: Box, server: Server) -> None:
    box.damaged(1500, 7500)
    server.ranges = False
    assert pull.run(server.spec())["got"] == [SHA] and box.whole()


def test_a_file_in_pieces_is_given_when_it_is_whole_only(box: Box) -> None:
    with serve.Server("127.0.0.1", 0, "t") as giver:
        target = f"/t/{SHA}/{NAME}"
        assert giver.file_of(target) is None
        box.put(DATA)
        assert giver.file_of(target) == str(box.path)
        pieces.write(str(box.path), [[0, 1000]])
        assert giver.file_of(target) is None and giver.file_of(target + ".holes") is None


# What a model's directory has


def test_files_of_a_model_that_is_in_no_store_are_taken_by_a_second_name(box: Box) -> None:
    there = box.put(DATA, box.models / "m/r1/sub" / NAME)
    at = ["m/r1+0123456789ab/x", "m/r1/sub/" + NAME]
    assert box.look(check=True, file={"at": at})["have"] == [SHA]
    assert box.whole() and box.path.samefile(there)


def test_a_damaged_one_there_is_copied_and_mended_and_a_rerun_goes_on(box: Box) -> None:
    there = box.put(flipped(1, 5001), box.models / "m/r1" / NAME)
    known = {"at": ["m/r1/" + NAME]}
    holes = box.look(check=True, file=known)["holes"][SHA]
    assert holes == [[0, 1000], [5000, 1000]]
    with pytest.raises(Failure):
        box.send(DATA[:1500], holes=holes)
    assert box.look(check=True, file=known)["holes"] == {SHA: [[5000, 1000]]}, "it is not copied once more"
    assert box.send(DATA[5000:6000], holes=[[5000, 1000]])["got"] == [SHA] and box.whole()
    assert there.read_bytes() == flipped(1, 5001)


def test_a_part_of_an_earlier_version_goes_on(box: Box, server: Server) -> None:
    box.put(DATA[:4000], box.models / "m/r1.incoming" / (NAME + ".part"))
    assert box.look(check=True, file={"at": ["m/r1.incoming/" + NAME]})["parts"] == {SHA: 4000}
    assert pull.run(server.spec())["got"] == [SHA] and server.asked == ["bytes=4000-"]


def test_a_place_elsewhere_is_refused(box: Box) -> None:
    box.models.mkdir()
    with pytest.raises(Failure, match="no place below"):
        box.look(check=True, file={"at": ["../../etc/passwd"]})


def test_another_model_s_name_for_the_same_bytes_counts(box: Box, server: Server) -> None:
    box.put(DATA)
    other = {**FILE, "filename": "mtp__" + NAME}
    assert stock.run({"files": [other], "check": True})["have"] == [SHA]
    assert pull.run({"files": [{**other, "urls": [server.url]}]})["got"] == [SHA]
    assert box.whole() and server.asked == []


def test_an_unknown_place() -> None:
    with pytest.raises(Failure, match="no place of the store"):
        store.path(NAME, SHA, "elsewhere")


# Power cuts: whatever call is the last one, the next run finishes, and takes nothing wrong for whole


class Cut(BaseException):
    """The power is gone."""


CALLS = [(os, "replace"), (os, "unlink"), (os, "link"), (os, "fsync"), (os, "fchmod"), (pieces, "write")]


class Power:
    """Lets so many calls through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 10**9
        for module, name in CALLS:
            monkeypatch.setattr(module, name, self.counted(getattr(module, name)))

    def counted(self, real: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Cut
            return real(*arguments, **more)

        return call


def deploy(box: Box, server: Server) -> None:
    """As a deploy has it: a look, then what lacks from another box."""
    found = box.look(check=True, file={"at": ["m/r1/" + NAME]})
    if SHA not in found["have"]:
        assert pull.run({"files": [{**FILE, "urls": [server.url]}], "peer": True})["got"] == [SHA]


@pytest.mark.parametrize("case", ["nothing", "damaged", "linked", "elsewhere", "bad part"])
def test_the_power_is_cut_at_every_step(
    case: str, tmp_path: Path, box: Box, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    power = Power(monkeypatch)
    cuts = 0
    for step in range(200):
        shutil.rmtree(box.models, ignore_errors=True)
        if case in ("damaged", "linked"):
            box.put(flipped(1500, 7500))
        if case == "linked":
            (box.models / "m/r1").mkdir(parents=True)
            os.link(box.path, box.models / "m/r1" / NAME)
        if case == "elsewhere":
            box.put(flipped(1500, 7500), box.models / "m/r1" / NAME)
        if case == "bad part":
            box.put(flipped(1500)[:4000], box.path.with_name(NAME + ".part"))
        server.asked.clear()
        power.left = step
        try:
            deploy(box, server)
        except Cut:
            cuts += 1
        else:
            break
        power.left = 10**9
        if store.is_whole(str(box.path), len(DATA)) and case not in ("damaged", "linked"):
            assert box.path.read_bytes() == DATA
        deploy(box, server)
        assert box.whole(), step
        if case in ("damaged", "linked", "elsewhere"):
            assert sum(server.lengths()) <= 3 * PIECE, (step, server.asked)
    else:
        pytest.fail("it does not end")
    assert cuts >= 3


def test_what_is_told_while_a_large_file_is_read(
    box: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pieces, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(pieces, "BLOCK", 3000)
    box.put(DATA)
    box.look(check=True)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"event": "progress", "read": len(DATA), "of": len(DATA)} in said
