"""A model's files come from the hub by its own client: once, resumed, checked, several at once."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request

import pytest

from gpufleet import model_files
from gpufleet.settings import Mirrors
from gpufleet.wheelhouse import child, large
from gpufleet.wheelhouse.items import FetchError, FromHub, FromUrl
from gpufleet.wheelhouse.store import Store
from lab.hub import Hub, Mood, Repo
from tests.command import REPOSITORY
from tests.unit.hubs import COMMIT, LARGE, PIECE, REPO, Bench, bench, page
from tests.unit.servers import Server

__all__ = ["bench"]


def test_all_come_once_by_the_clients_way_and_the_second_time_nothing_is_asked(bench: Bench) -> None:
    total = sum(map(len, bench.files.values()))
    assert [item.filename for item in bench.ready()] == [path.replace("/", "__") for path in bench.files]
    assert bench.whole()
    assert (bench.tally.files, bench.tally.bytes) == (3, total) == (3, bench.hub.sent.total())
    assert bench.hub.requests[f"HEAD /{REPO}/resolve/{COMMIT}/{LARGE}"] == 1
    assert bench.hub.requests[f"GET /{REPO}//{LARGE}"] == 1  # of the storage, after a redirect
    asked = bench.hub.requests.total()
    bench.ready()
    assert bench.hub.requests.total() == asked and bench.tally.files == 3


def test_pieces_are_beside_large_files_and_found_again_when_lost(bench: Bench) -> None:
    bench.ready()
    data = bench.files[LARGE]
    right = [hashlib.sha256(data[at : at + PIECE]).hexdigest() for at in range(0, len(data), PIECE)]
    assert len(right) == 3 and model_files.pieces(bench.store, bench.item()) == right
    kept = bench.place().with_name(LARGE + ".pieces")
    assert json.loads(kept.read_text())["piece"] == PIECE
    kept.write_text("{")
    assert model_files.pieces(bench.store, bench.item()) == right == json.loads(kept.read_text())["pieces"]
    assert model_files.pieces(bench.store, bench.item("config.json")) is None
    assert list(bench.place("config.json").parent.iterdir()) == [bench.place("config.json")]
    kept.unlink()
    bench.place().write_bytes(b"x" * len(data))
    with pytest.raises(FetchError, match=r"was damaged, and is removed\. Call it again"):
        model_files.pieces(bench.store, bench.item())
    assert not bench.store.has(bench.item())


def test_connections_that_are_cut_go_on_where_they_ended(bench: Bench) -> None:
    bench.only()
    bench.hub.moods = [Mood("cut", LARGE, at=at) for at in (5 << 20, (5 << 20) + 1, 20 << 20)]
    bench.ready()
    assert bench.whole() and bench.sent() == len(bench.files[LARGE])
    assert f"{LARGE}: {bench.hub.url}: " in bench.said[1] and "again in 0 s" in bench.said[1]


def test_a_stall_is_ended_and_gone_on_after(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.only()
    monkeypatch.setattr(child, "STALL_SECONDS", 5.0)
    bench.hub.moods = [Mood("stall", LARGE, at=10 << 20)]
    bench.ready()
    assert bench.whole() and bench.sent() == len(bench.files[LARGE])


def test_a_file_that_ends_too_soon_is_gone_on_with_or_is_another_one(bench: Bench) -> None:
    bench.only()
    bench.hub.moods = [Mood("short", LARGE, at=9 << 20)]
    bench.ready()
    assert bench.whole() and bench.sent() == len(bench.files[LARGE])
    bench.place().unlink()
    bench.place().with_name(LARGE + ".pieces").unlink()
    bench.hub.moods = [Mood("short", LARGE, at=9 << 20, times=1000)]
    with pytest.raises(
        FetchError, match=rf"^{LARGE} of .*: it has less bytes than the model's page says\. The page is"
    ):
        bench.ready()


def test_the_stand_in_runs_as_a_process(bench: Bench) -> None:
    root = bench.root / "repos"
    for path, data in bench.files.items():
        place = root / REPO / COMMIT / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    ports = [free_port(), free_port()]
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.hub", "--root", str(root), "--bind", "127.0.0.1"]
        + ["--port", str(ports[0]), "--storage-port", str(ports[1])],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        url = f"http://127.0.0.1:{ports[0]}"
        moods = json.dumps([{"do": "cut", "path": LARGE, "at": 1000}]).encode()
        urllib.request.urlopen(f"{url}/-/moods", data=moods).close()
        bench.ready(mirrors={"hub": url})
        with urllib.request.urlopen(f"{url}/-/counts") as answer:
            counts = json.load(answer)
    finally:
        process.kill()
        process.communicate()
    assert bench.whole() and counts["requests"][f"GET /{REPO}//{LARGE}"] == 2
    assert counts["sent"] == {f"{REPO}/{path}": len(data) for path, data in bench.files.items()}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_a_line_that_only_drips_stands_still() -> None:
    watch = child.Watch(60.0, 0.0)
    for second in range(60):
        watch.at(second * 1000, second)
    assert not watch.over(60) and watch.over(61)
    watch.at(child.LEAST, 61)
    assert not watch.over(100)


def test_a_child_that_hangs_without_a_word_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "STALL_SECONDS", 1.0)
    fifo = bench.root / "fifo"
    os.mkfifo(fifo)  # to read it hangs for ever
    with pytest.raises(FetchError, match=r"fifo cannot be read: nothing came for 1 s"):
        large.read(fifo, lambda: None)


@pytest.mark.parametrize("at", [0, 7 << 20, 2 * PIECE + 12344])
def test_a_flipped_bit_on_the_way_is_seen_and_the_file_comes_once_more(bench: Bench, at: int) -> None:
    bench.only()
    bench.hub.moods = [Mood("flip", LARGE, at=at)]
    bench.ready()
    assert bench.whole() and bench.sent() == 2 * len(bench.files[LARGE])
    assert f"{LARGE} came with wrong bytes, and is fetched once more" in bench.said


def test_a_part_of_something_else_is_dropped(bench: Bench) -> None:
    bench.only()
    part = bench.place().with_name(LARGE + ".part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * (20 << 20))
    bench.ready()
    assert bench.whole() and bench.sent() == 2 * len(bench.files[LARGE]) - (20 << 20)


def test_a_part_that_is_too_long_is_of_another_file(bench: Bench) -> None:
    bench.only()
    part = bench.place().with_name(LARGE + ".part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * (len(bench.files[LARGE]) + 1))
    bench.ready()
    assert bench.whole() and bench.sent() == len(bench.files[LARGE])


def test_what_another_mirror_began_goes_on_with_the_next(bench: Bench) -> None:
    bench.only()
    bench.hub.moods = [Mood("cut", LARGE, at=9 << 20, times=1000)]
    with pytest.raises(FetchError):
        bench.ready()
    with Hub({REPO: Repo(bench.files, COMMIT)}) as mirror:
        bench.ready(mirrors={"hub": mirror.url})
        assert bench.whole() and mirror.sent[f"{REPO}/{LARGE}"] == len(bench.files[LARGE]) - (9 << 20)


def test_two_processes_at_once_fetch_each_file_once(bench: Bench) -> None:
    bench.hub.moods = [Mood("slow", "", times=1000, rate=60e6)]
    threads = [threading.Thread(target=bench.ready) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.whole() and bench.hub.sent.total() == sum(map(len, bench.files.values()))


def test_files_with_the_same_bytes_are_one_item_and_heads_are_among_them(bench: Bench) -> None:
    files = {"a.json": b"{}", "b.json": b"{}", "model-mtp.safetensors": b"old"}
    head = page({"model-mtp.safetensors": b"new", "README.md": b"no"})
    source = head.source.model_dump(mode="json", exclude_none=True) | {"hub": "org/head"}
    made = page(files, mtp_head={"source": source})
    items = model_files.items(made, Mirrors())
    assert [(item.filename, item.size) for item in items] == [
        ("a.json", 2),
        ("model-mtp.safetensors", 3),
        ("model-mtp.safetensors", 3),
    ]
    assert items[2] == model_files.head(made, Mirrors())
    assert items[2].origin == FromHub("org/head", COMMIT, "model-mtp.safetensors")
    assert model_files.files(made, Mirrors())["b.json"] == items[0]
    assert model_files.items(page({}, source={"path": "/srv/m"}), Mirrors()) == []


@pytest.mark.parametrize("http", [True, False])
def test_an_empty_file_is_a_file(bench: Bench, http: bool) -> None:
    bench.files = {"empty.txt": b""}
    bench.hub.repos[REPO] = Repo(bench.files, COMMIT)
    bench.model = page(bench.files)
    if http:
        listed = bench.model.source.model_dump(mode="json", exclude_none=True)["files"]
        bench.model = page({}, source={"http": f"{bench.hub.url}/{REPO}/resolve/{COMMIT}", "files": listed})
    bench.ready()
    assert bench.whole() and bench.tally.bytes == 0


def test_plain_servers_and_their_mirror(bench: Bench) -> None:
    listed = bench.model.source.model_dump(mode="json", exclude_none=True)["files"]
    with Server() as server:
        for path, data in bench.files.items():
            server.add(f"/org/tiny/{path}", data)
        server.trouble, server.broken = f"/org/tiny/{LARGE}", 2
        bench.model = page({}, source={"http": "http://nowhere.example/org/tiny/", "files": listed})
        assert bench.item().origin == FromUrl(f"http://nowhere.example/org/tiny/{LARGE}")
        bench.ready(mirrors={"models": server.url + "/{path}"})
        kept = model_files.pieces(bench.store, bench.item())
        assert bench.whole() and kept and len(kept) == 3
        assert server.sent == sum(map(len, bench.files.values())) == bench.tally.bytes


def test_a_store_elsewhere_has_what_the_first_one_has(bench: Bench) -> None:
    items = bench.ready()
    other = Store(bench.root / "other")
    with bench.place().open("rb") as content:
        other.write(items[1], content, "here", in_pieces=True)
    assert other.pieces(items[1]) == bench.store.pieces(items[1]) is not None
