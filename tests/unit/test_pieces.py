"""Large files piece by piece: what is damaged comes again, what is good stays, whatever comes between."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostkit import files, pieces, pull, serve, stock, store
from hostkit.errors import Failure
from tests.unit.piece_box import DATA, FILE, NAME, SHA, SUMS, Box, Server, flipped, made, serving


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    return made(tmp_path, monkeypatch)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving(monkeypatch) as found:
        yield found


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


def test_what_is_told_while_a_large_file_is_read(
    box: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pieces, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(pieces, "BLOCK", 3000)
    box.put(DATA)
    box.look(check=True)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"event": "progress", "read": len(DATA), "of": len(DATA)} in said
