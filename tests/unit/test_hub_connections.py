"""One large file over several connections: each byte once, gone on with where each of them ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gpufleet.wheelhouse import child, hub, left
from gpufleet.wheelhouse.items import FetchError, FromUrl, Item
from lab.hub import Hub, Mood, Repo
from tests.unit.hubs import COMMIT, LARGE, PIECE, REPO, Bench, bench, page
from tests.unit.servers import Server

__all__ = ["bench"]

STRETCH = 8 << 20
SIZE = 2 * PIECE + 12345
STRETCHES = 5
CUT = STRETCH + (1 << 20)


@pytest.fixture
def one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(hub, "STRETCH", STRETCH)
    bench.only()
    return bench


@pytest.fixture
def begun(one: Bench) -> Bench:
    """One connection was cut at a byte again and again, until it was given up; all other bytes came."""
    one.hub.moods = [Mood("cut", LARGE, at=CUT, times=1000)]
    with pytest.raises(FetchError, match=r"What came is kept"):
        one.ready()
    one.hub.moods = []
    assert json.loads(beside(one).read_text())["left"] == [[CUT, 2 * STRETCH - CUT]]
    return one


def part(bench: Bench) -> Path:
    return bench.place().with_name(LARGE + ".part")


def beside(bench: Bench) -> Path:
    return bench.place().with_name(LARGE + ".part.left")


def alone(bench: Bench) -> bool:
    """The file is right, and nothing but its pieces lies beside it."""
    return bench.whole() and {path.name for path in bench.place().parent.iterdir()} == {LARGE, LARGE + ".pieces"}


def test_each_stretch_comes_once(one: Bench) -> None:
    one.ready()
    assert alone(one) and one.sent() == SIZE == one.tally.bytes
    assert one.hub.requests[f"GET /{REPO}//{LARGE}"] == STRETCHES


def test_one_that_stalls_holds_up_no_other(one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "STALL_SECONDS", 5.0)
    one.hub.moods = [Mood("stall", LARGE, at=0)]
    one.ready()
    assert alone(one) and one.sent() == SIZE
    assert one.said[-1].endswith(
        "again in 0 s"
    )  # the try brought something, so the first byte's connection was not all


def test_what_one_mirror_began_the_next_goes_on_with(begun: Bench) -> None:
    lacking = 2 * STRETCH - CUT
    assert begun.store.part(begun.item()) == SIZE - lacking
    with Hub({REPO: Repo(begun.files, COMMIT)}) as mirror:
        begun.ready(mirrors={"hub": mirror.url})
        assert alone(begun) and mirror.sent[f"{REPO}/{LARGE}"] == lacking
    assert f"1 files, {lacking / 2**20:.1f} MiB to fetch" in begun.said


def test_a_plain_server_begins_anew(begun: Bench) -> None:
    listed = begun.model.source.model_dump(mode="json", exclude_none=True)["files"]
    with Server() as server:
        server.add(f"/tiny/{LARGE}", begun.files[LARGE])
        begun.model = page({}, source={"http": server.url + "/tiny", "files": listed})
        assert isinstance(begun.item().origin, FromUrl)
        begun.ready()
        assert alone(begun) and server.sent == SIZE


@pytest.mark.parametrize("said", ["", "[]", '{"size": 7, "left": []}', '{"size": %d, "left": [[0, %d]]}'])
def test_a_note_of_something_else_does_not_count(one: Bench, said: str) -> None:
    part(one).parent.mkdir(parents=True)
    part(one).write_bytes(one.files[LARGE][:CUT])
    beside(one).write_text(said % (SIZE, SIZE + 1) if "%" in said else said)
    one.ready()
    assert alone(one) and one.sent() == SIZE - CUT


def test_a_note_that_says_too_much_never_gives_a_wrong_file(one: Bench) -> None:
    part(one).parent.mkdir(parents=True)
    part(one).write_bytes(bytes(SIZE))
    left.write(part(one), SIZE, [])
    one.ready()
    assert alone(one) and one.sent() == SIZE


def test_a_flipped_bit_on_the_way_has_all_of_it_come_again(one: Bench) -> None:
    one.hub.moods = [Mood("flip", LARGE, at=CUT)]
    one.ready()
    assert alone(one) and one.sent() == 2 * SIZE


def test_connections_are_shared_by_the_large_files() -> None:
    def of(*sizes: int) -> int:
        return hub.connections([Item(str(size), "", size, FromUrl("")) for size in sizes], 4)

    big = hub.STRETCH + 1
    assert [of(), of(5), of(big), of(big, 5), of(big, big), of(*[big] * 40)] == [8, 8, 8, 8, 4, 2]


@given(some.lists(some.tuples(some.integers(0, 1000), some.integers(1, 1000)), max_size=5), some.integers(1, 300))
def test_stretches_are_the_same_bytes(ranges: list[tuple[int, int]], longest: int) -> None:
    stretches = left.cut(ranges, longest)
    assert all(0 < length <= longest for _, length in stretches)
    assert [byte for at, length in stretches for byte in range(at, at + length)] == [
        byte for at, length in ranges for byte in range(at, at + length)
    ]
