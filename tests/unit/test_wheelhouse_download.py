"""Files come into the store several at once, resumed, and each once for all processes; what is said of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet.wheelhouse import download, pool, progress
from gpufleet.wheelhouse.download import Tally, get
from gpufleet.wheelhouse.index import Finder
from gpufleet.wheelhouse.items import FetchError, FromIndex, FromUrl, Item
from gpufleet.wheelhouse.places import Places
from gpufleet.wheelhouse.progress import Progress, line, size
from gpufleet.wheelhouse.store import Store
from hostkit import fetch
from tests.unit.servers import Server, sha256

CONTENTS = {f"p{number}-1-py3-none-any.whl": bytes([number]) * 200_000 * (number + 1) for number in range(6)}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    with Server() as found:
        for name, content in CONTENTS.items():
            found.add(f"/files/{name}", content)
            link = {"filename": name, "url": f"/files/{name}", "hashes": {"sha256": sha256(content)}}
            found.index(name[:2], {**link, "size": len(content)})
        yield found


def items() -> list[Item]:
    return [Item(name, sha256(content), len(content), FromIndex(name[:2], "1")) for name, content in CONTENTS.items()]


def finder(server: Server) -> Finder:
    return Finder(Places((f"{server.url}/simple",)))


def bring(server: Server, store: Store, wanted: list[Item] | None = None) -> tuple[Tally, list[str]]:
    tally, said = Tally(), []
    get(wanted or items(), store, finder(server), said.append, tally)
    return tally, said


def test_all_come_and_the_second_time_none(server: Server, tmp_path: Path) -> None:
    total = sum(map(len, CONTENTS.values()))
    tally, said = bring(server, Store(tmp_path))
    assert tally == Tally(6, total)
    assert said[0] == f"6 files, {size(total)} to fetch"
    assert {item.filename: Store(tmp_path).path(item).read_bytes() for item in items()} == CONTENTS
    asked = len(server.asked)
    assert bring(server, Store(tmp_path)) == (Tally(), [])
    assert len(server.asked) == asked


def test_bad_lines_and_a_part_of_an_earlier_run(server: Server, tmp_path: Path) -> None:
    store, first = Store(tmp_path), items()[0]
    store.path(first).parent.mkdir(parents=True)
    store.path(first).with_name(first.filename + ".part").write_bytes(CONTENTS[first.filename][:50_000])
    server.trouble, server.broken = "/files/", 4
    tally, _ = bring(server, store)
    assert {item.filename: store.path(item).read_bytes() for item in items()} == CONTENTS
    assert tally == Tally(6, sum(map(len, CONTENTS.values())) - 50_000)
    assert list(tmp_path.rglob("*.part")) == []


def test_a_wrong_file_ends_it_names_it_and_leaves_the_others(server: Server, tmp_path: Path) -> None:
    name = "p5-1-py3-none-any.whl"
    server.files[f"/files/{name}"] = b"x" * len(CONTENTS[name])
    store = Store(tmp_path)
    with pytest.raises(FetchError, match=rf"^{name}: .*/files/{name} has sha256 .*, not the pinned .*\. The source"):
        bring(server, store)
    wrong = next(item for item in items() if item.filename == name)
    assert not store.has(wrong) and store.part(wrong) == 0
    server.add(f"/files/{name}", CONTENTS[name])
    bring(server, store)
    assert all(store.has(item) for item in items())


def test_a_server_that_is_gone_leaves_what_came(server: Server, tmp_path: Path) -> None:
    item = items()[5]
    server.statuses["/files/" + item.filename] = 404
    with pytest.raises(FetchError, match=r"answers 404\. Check the address"):
        bring(server, Store(tmp_path), [item])


def test_an_address_of_its_own_without_a_size(server: Server, tmp_path: Path) -> None:
    name, content = next(iter(CONTENTS.items()))
    item = Item(name, sha256(content), None, FromUrl(f"{server.url}/files/{name}"))
    assert bring(server, Store(tmp_path), [item])[0] == Tally(1, len(content))


def test_what_lies_on_this_machine_is_copied_not_fetched(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    tally = Tally()
    get(items(), Store(tmp_path / "s"), Finder(Places((), folders=(folder,))), lambda text: None, tally)
    assert tally == Tally(0, 0) and server.asked == []
    assert all(Store(tmp_path / "s").has(item) for item in items())


def test_only_local_leaves_the_rest(server: Server, tmp_path: Path) -> None:
    get(items(), Store(tmp_path), Finder(finder(server).places, local_only=True), lambda text: None, Tally())
    assert server.asked == [] and not any(Store(tmp_path).has(item) for item in items())


def test_no_room_is_said_before_anything_is_fetched(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("gpufleet.wheelhouse.store.shutil.disk_usage", lambda path: Usage)
    with pytest.raises(FetchError, match=r"4\.0 MiB are to be written, 1 KiB are free"):
        bring(server, Store(tmp_path))
    assert not [path for path in server.asked if path.startswith("/files/")]


def test_two_runs_at_once_fetch_each_file_once(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "LOOK_SECONDS", 0.01)
    tallies: list[Tally] = []

    def run() -> None:
        tallies.append(bring(server, Store(tmp_path))[0])

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(tally.bytes for tally in tallies) == sum(map(len, CONTENTS.values()))
    assert len([path for path in server.asked if path.startswith("/files/")]) == len(CONTENTS)


def test_results_are_in_order_and_the_first_error_ends_it() -> None:
    assert pool.each(lambda number, stop: number * 2, range(50), 4) == [number * 2 for number in range(50)]
    assert pool.each(lambda number, stop: number, [], 4) == []
    begun = []

    def work(number: int, stop: threading.Event) -> None:
        begun.append(number)
        if number == 1:
            raise FetchError("one")
        if not stop.wait(60):
            raise AssertionError("it was not told to stop")
        raise pool.Stopped

    with pytest.raises(FetchError, match="one"):
        pool.each(work, range(50), 3)
    assert len(begun) <= 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 2**30, 0.0, []), "0 KiB of 1.0 GiB, stalled"),
        ((2**20, 3 * 2**20, 2.0**20, ["a"]), "1.0 MiB of 3.0 MiB, 1.0 MiB/s, 2 s to go: a"),
        ((2**20, 2**40, 2.0**20, ["a", "b"]), "1.0 MiB of 1024.0 GiB, 1.0 MiB/s, 291 h 16 min to go: a, b"),
        ((5, None, 2.0**30, list("abcd")), "0 KiB, 1.0 GiB/s: a, b and 2 more"),
        ((9, 5, 1.0, []), "0 KiB of 0 KiB, 0 KiB/s, 0 s to go"),
    ],
)
def test_a_line_of_progress(arguments: tuple[int, int | None, float, list[str]], said: str) -> None:
    assert line(*arguments) == said


def test_at_most_a_line_in_five_seconds_at_the_rate_of_the_last_half_minute() -> None:
    now, said = [0.0], []
    state = Progress({"a": 100 * 2**20, "b": None}, {"a": 10 * 2**20, "b": 0}, said.append, lambda: now[0])
    state.begin("a")
    for second in range(1, 61):
        now[0] = float(second)
        state.at("a", (10 + second) * 2**20)
    assert len(said) == 12
    assert said[-1] == "70.0 MiB, 1.0 MiB/s: a"
    known = Progress({"a": 100 * 2**20}, {"a": 90 * 2**20}, said.append, lambda: now[0])
    known.begin("a")
    now[0] += progress.EVERY_SECONDS
    known.at("a", 95 * 2**20)
    assert said[-1] == "95.0 MiB of 100.0 MiB, 1.0 MiB/s, 5 s to go: a"
    known.end("a")
    now[0] += progress.EVERY_SECONDS
    known.at("a", 95 * 2**20)
    assert said[-1].endswith("/s, 10 s to go")
