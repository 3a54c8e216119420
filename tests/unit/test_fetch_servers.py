"""A download from a server that hangs, breaks off, knows no ranges, redirects or sends something else; a full disk."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostkit import fetch
from hostkit.errors import Failure
from tests.unit.servers import Server, sha256

DATA = bytes(range(256)) * 4000
SHA = sha256(DATA)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    with Server() as found:
        found.add("/file", DATA)
        yield found


def get(server: Server, folder: Path, path: str = "/file", size: int | None = len(DATA), **more: Any) -> bytes:
    fetch.fetch_file(server.url + path, str(folder / "f"), SHA, size, **more)
    assert not (folder / "f.part").exists()
    return (folder / "f").read_bytes()


def test_a_server_that_hangs_is_left_and_asked_for_the_rest(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT_SECONDS", 0.2)
    server.hanging = 1
    assert get(server, tmp_path) == DATA
    assert server.sent == len(DATA)


def test_a_server_without_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    server.ranges, server.broken = False, 2
    assert get(server, tmp_path) == DATA
    assert server.sent == 2 * len(DATA)


@pytest.mark.parametrize("size", [len(DATA), None])
def test_a_body_that_is_cut_short_is_no_wrong_file(server: Server, tmp_path: Path, size: int | None) -> None:
    server.broken = 1
    assert get(server, tmp_path, size=size) == DATA
    assert server.sent == len(DATA)


def test_a_length_that_is_not_announced_is_known_from_the_pin(server: Server, tmp_path: Path) -> None:
    server.unannounced, server.broken = True, 2
    assert get(server, tmp_path) == DATA


def test_a_redirect_keeps_the_range(server: Server, tmp_path: Path) -> None:
    server.moved["/old"] = server.url + "/file"
    (tmp_path / "f.part").write_bytes(DATA[:1000])
    assert get(server, tmp_path, "/old") == DATA
    assert server.sent == len(DATA) - 1000


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.busy = 4
    assert get(server, tmp_path) == DATA
    server.busy = 5
    with pytest.raises(Failure, match="503"):
        fetch.fetch_file(server.url + "/file", str(tmp_path / "other"), SHA)


def test_tries_are_counted_anew_when_one_brought_more(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "GAIN", 1000)
    server.broken = 8
    assert get(server, tmp_path) == DATA


def test_another_size_is_said_before_it_is_fetched(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=rf"has {len(DATA)} bytes, not the pinned 5\. "):
        fetch.fetch_file(server.url + "/file", str(tmp_path / "f"), SHA, 5)
    assert list(tmp_path.iterdir()) == []


def test_more_than_the_size_is_not_read_to_its_end(server: Server, tmp_path: Path) -> None:
    server.unannounced = True
    with pytest.raises(Failure, match=r"has more bytes, not the pinned 5\. "):
        fetch.fetch_file(server.url + "/file", str(tmp_path / "f"), SHA, 5)
    assert list(tmp_path.iterdir()) == []


def test_another_range_than_asked_for_is_not_appended(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(DATA[:1000])
    server.shifted = 1
    assert get(server, tmp_path, size=None) == DATA


def test_a_damaged_part_of_an_earlier_run_is_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(b"\0" * 1000)
    assert get(server, tmp_path) == DATA
    (tmp_path / "f").unlink()
    (tmp_path / "f.part").write_bytes(b"\0" * len(DATA))
    assert get(server, tmp_path) == DATA


@pytest.mark.parametrize("size", [len(DATA), None])
def test_a_part_that_is_whole_is_only_renamed(server: Server, tmp_path: Path, size: int | None) -> None:
    (tmp_path / "f.part").write_bytes(DATA)
    assert get(server, tmp_path, size=size) == DATA
    assert server.sent == 0


def test_a_full_disk_ends_it_at_once_and_the_next_run_goes_on(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            super().write(data[:1000])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def opened(path: str, mode: str) -> Any:
        return Full(path, mode) if "r" not in mode else open(path, mode)

    monkeypatch.setattr(fetch, "open", opened, raising=False)
    with pytest.raises(Failure, match=r"f\.part: No space left on device\. free space") as caught:
        get(server, tmp_path)
    assert "goes on with it" in caught.value.remedy
    assert server.asked == ["/file"]
    assert not (tmp_path / "f").exists() and (tmp_path / "f.part").read_bytes() == DATA[:1000]
    monkeypatch.delattr(fetch, "open")
    assert get(server, tmp_path) == DATA


def test_who_opens_the_address_may_be_another(server: Server, tmp_path: Path) -> None:
    seen = []

    def opened(request: Any) -> Any:
        seen.append(request.full_url)
        return fetch.plain_open(request)

    assert get(server, tmp_path, open_url=opened) == DATA
    assert seen == [server.url + "/file"]
