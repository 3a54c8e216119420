"""A file of the controller's store that went bad: found when it is looked for, and only what is bad comes again."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet.wheelhouse import large, pieces
from gpufleet.wheelhouse.items import FetchError
from lab.hub import Mood
from tests.unit.hubs import LARGE, PIECE, Bench, content, page
from tests.unit.servers import Server

SIZE = 2 * PIECE + 12345


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(large.time, "sleep", lambda seconds: None)
    found = Bench(tmp_path)
    found.only()
    with found.hub:
        found.ready()
        found.hub.sent.clear()
        yield found


def damage(place: Path, *offsets: int) -> None:
    with place.open("r+b") as handle:
        for offset in offsets:
            handle.seek(offset)
            byte = handle.read(1)[0]
            handle.seek(offset)
            handle.write(bytes([byte ^ 64]))


def test_hashes_in_pieces_are_those_of_the_parts_however_it_is_read() -> None:
    data = content(3, SIZE)
    found = pieces.Hashing()
    for start in range(0, SIZE, 7_000_001):
        found.update(data[start : start + 7_000_001])
    plain = pieces.Hashing(in_pieces=False)
    plain.update(data)
    sums = found.sums
    assert (sums.sha256, sums.size) == (plain.sums.sha256, plain.sums.size) and plain.sums.pieces == ()
    halves = [pieces.Hashing() for _ in range(3)]
    for number, each in enumerate(halves):
        each.update(data[number * PIECE : (number + 1) * PIECE])
    assert sums.pieces == tuple(each.sums.sha256 for each in halves)


def test_what_the_disk_cannot_read_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(3, SIZE))
    right = pieces.sums(path)
    genuine = os.pread

    def bad(descriptor: int, length: int, offset: int) -> bytes:
        if offset <= PIECE + 5000 < offset + length:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return genuine(descriptor, length, offset)

    monkeypatch.setattr(pieces.os, "pread", bad)
    found = pieces.sums(path)
    assert found.sha256 != right.sha256 and found.size == SIZE
    assert pieces.holes(SIZE, right.pieces, found.pieces) == [(PIECE, PIECE)]


def test_holes_are_what_is_wrong_and_what_lacks_joined() -> None:
    right = ["a", "b", "c", "d"]
    size = 3 * PIECE + 5
    assert pieces.holes(size, right, right) == []
    assert pieces.holes(size, right, ["a", "x", "x", "d"]) == [(PIECE, 2 * PIECE)]
    assert pieces.holes(size, right, ["x", "b"]) == [(0, PIECE), (2 * PIECE, PIECE + 5)]


def test_what_is_right_is_read_and_left(bench: Bench) -> None:
    assert bench.mend() == [] and bench.hub.sent.total() == 0
    assert bench.said[-1] == "reading 1 files, 32.0 MiB"


def test_a_flipped_bit_costs_its_piece(bench: Bench) -> None:
    damage(bench.place(), PIECE + 77)
    assert bench.mend() == [bench.item()]
    assert bench.whole() and bench.sent() == PIECE
    assert f"{LARGE} was damaged: 16 MiB of 32 MiB are fetched anew" in bench.said
    bench.ready()
    assert bench.sent() == PIECE


def test_a_cut_short_file_is_seen_by_a_deploy_and_gets_its_end(bench: Bench) -> None:
    with bench.place().open("r+b") as handle:
        handle.truncate(PIECE + 9)
    bench.ready()
    assert bench.whole() and bench.sent() == SIZE - PIECE


def test_a_longer_file_gets_nothing(bench: Bench) -> None:
    with bench.place().open("ab") as handle:
        handle.write(b"more")
    bench.ready()
    assert bench.whole() and bench.sent() == 0


def test_mending_that_breaks_off_goes_on(bench: Bench) -> None:
    damage(bench.place(), 5, PIECE + 5, 2 * PIECE + 5)
    bench.hub.moods = [Mood("cut", LARGE, at=PIECE + (4 << 20)), Mood("cut", LARGE, at=0, times=0)]
    assert bench.mend() == [bench.item()]
    assert bench.whole() and bench.sent() == SIZE


def test_mending_that_was_given_up_goes_on_with_the_next_run(bench: Bench) -> None:
    damage(bench.place(), 5, 2 * PIECE + 5)
    bench.hub.moods = [Mood("status", LARGE, status=404)]
    with pytest.raises(FetchError, match=r"model\.safetensors of org/tiny .*: it answers 404"):
        bench.mend()
    assert not bench.store.has(bench.item())
    bench.ready()
    assert bench.whole() and bench.sent() == PIECE + 12345


def test_wrong_pieces_are_no_reason_to_keep_wrong_bytes(bench: Bench) -> None:
    damage(bench.place(), 5)
    bench.hub.moods = [Mood("flip", LARGE, at=6)]
    bench.mend()
    assert bench.whole() and bench.sent() == PIECE + SIZE


def test_without_pieces_all_of_it_comes_again(bench: Bench) -> None:
    damage(bench.place(), 5)
    bench.place().with_name(LARGE + ".pieces").write_text("[]")
    bench.mend()
    assert bench.whole() and bench.sent() == SIZE and bench.store.pieces(bench.item())


def test_lost_pieces_are_made_anew(bench: Bench) -> None:
    kept = bench.place().with_name(LARGE + ".pieces")
    before = kept.read_text()
    kept.unlink()
    assert bench.mend() == [] and kept.read_text() == before


@pytest.mark.parametrize("ranges", [True, False])
def test_plain_servers_give_ranges_too(bench: Bench, ranges: bool) -> None:
    listed = bench.model.source.model_dump(mode="json", exclude_none=True)["files"]
    with Server(ranges=ranges) as server:
        bench.model = page({}, source={"http": server.url + "/tiny", "files": listed})
        server.add(f"/tiny/{LARGE}", bench.files[LARGE])
        server.broken = 1
        damage(bench.place(), PIECE + 7)
        assert bench.mend() == [bench.item()]
        assert bench.whole() and bench.hub.sent.total() == 0
        assert len(server.asked) == 2 and (not ranges or server.sent == PIECE + PIECE // 2)
