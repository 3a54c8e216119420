"""Addresses of pinned files from package indexes, by JSON and HTML, one request for each project."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet.wheelhouse import index, page, web
from gpufleet.wheelhouse.index import Address, Finder
from gpufleet.wheelhouse.items import FetchError, FromIndex, FromUrl, Item
from gpufleet.wheelhouse.places import Places
from tests.unit.servers import Server, sha256

WHEEL = b"wheel"
NAME = "tiny_x-1.0+cpu-py3-none-any.whl"
ITEM = Item(NAME, sha256(WHEEL), len(WHEEL), FromIndex("Tiny.X", "1.0+cpu"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(index.time, "sleep", lambda seconds: None)
    with Server() as found:
        yield found


def finder(server: Server, *more: str, folders: tuple[Path, ...] = ()) -> Finder:
    return Finder(Places((f"{server.url}/simple", *more), folders=folders))


def html(server: Server, body: str, under: str = "/simple") -> None:
    server.add(f"{under}/tiny-x/", f"<!DOCTYPE html><html><body>{body}</body></html>".encode(), "text/html")


def test_json_by_hash_whatever_the_name(server: Server) -> None:
    server.index(
        "tiny-x",
        {"filename": NAME, "url": "../../files/other", "hashes": {"sha256": "0" * 64}, "size": 9},
        {"filename": "renamed.whl", "url": "../../files/right", "hashes": {"sha256": ITEM.sha256}, "size": 5},
    )
    assert finder(server).addresses([ITEM]) == {ITEM.sha256: Address(f"{server.url}/files/right", size=5)}


def test_html_by_hash_or_by_name(server: Server) -> None:
    quoted = NAME.replace("+", "%2B")
    html(server, f'<a href="old.whl#sha256={"0" * 64}">x</a><a href="w/{quoted}#sha256={ITEM.sha256.upper()}">y</a>')
    assert finder(server).addresses([ITEM])[ITEM.sha256].url == f"{server.url}/simple/tiny-x/w/{quoted}"
    html(server, f'<base href="/b/"><a>z</a><a href="{quoted}#md5=1">y</a>')
    assert finder(server).addresses([ITEM])[ITEM.sha256].url == f"{server.url}/b/{quoted}"


def test_one_request_for_a_project_and_none_for_its_second_file(server: Server) -> None:
    other = Item("tiny_x-2.whl", sha256(b"2"), None, FromIndex("tiny-x", "2"))
    server.index(
        "tiny-x", *({"filename": i.filename, "url": i.filename, "hashes": {"sha256": i.sha256}} for i in (ITEM, other))
    )
    found = finder(server)
    assert set(found.addresses([ITEM, other])) == {ITEM.sha256, other.sha256}
    assert set(found.addresses([ITEM])) == {ITEM.sha256}
    assert server.asked == ["/simple/tiny-x/"]


def test_the_next_index_is_asked_for_what_one_lacks(server: Server) -> None:
    html(server, f'<a href="{NAME}#sha256={ITEM.sha256}">x</a>', "/more")
    server.statuses["/simple/tiny-x/"] = 403
    assert finder(server, f"{server.url}/more").addresses([ITEM])[ITEM.sha256].url.startswith(f"{server.url}/more/")


def test_a_mirror_whose_index_is_elsewhere(server: Server) -> None:
    """Relative addresses are of where the page came from in the end."""
    html(server, f'<a href="{NAME}#sha256={ITEM.sha256}">x</a>', "/moved")
    server.moved["/simple/tiny-x/"] = f"{server.url}/moved/tiny-x/"
    assert finder(server).addresses([ITEM])[ITEM.sha256].url == f"{server.url}/moved/tiny-x/{NAME}"


def test_what_is_nowhere_is_said_with_what_each_index_answered(server: Server) -> None:
    html(server, f'<a href="{NAME}#sha256={"1" * 64}">x</a>')
    server.add("/third/tiny-x/", b"{}", "application/json")
    server.add("/fourth/tiny-x/", b"hello", "text/plain")
    server.statuses["/fifth/tiny-x/"] = 403
    more = [f"{server.url}/{name}" for name in ("second", "third", "fourth", "fifth")]
    with pytest.raises(FetchError) as caught:
        finder(server, *more).addresses([ITEM])
    said = str(caught.value)
    assert said.startswith(f"1 files cannot be found: {NAME}: {server.url}/simple has it with another sha256 (1111")
    assert f"{server.url}/second has no such project" in said
    assert f"{server.url}/third sends a page without a list of files" in said
    assert f"{server.url}/fourth answers with 'text/plain' (5 bytes)" in said
    assert f"{server.url}/fifth answers 403" in said
    assert "mirrors.pypi" in said and len(said.splitlines()) == 1


def test_a_dead_index_is_asked_three_times_for_all(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "AT_ONCE", 1)
    tries = []

    def refused(request: urllib.request.Request) -> object:
        tries.append(request.full_url)
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(index.web, "opener", lambda addresses: refused)
    items = [Item(f"p{n}.whl", f"{n}" * 64, 1, FromIndex(f"p{n}", "1")) for n in range(9)]
    with pytest.raises(FetchError, match=r"9 files .* does not answer: refused.* and 4 more") as caught:
        finder(server).addresses(items)
    assert len(tries) == index.TRIES
    assert "p8.whl" not in str(caught.value)


def test_a_busy_index_is_asked_again(server: Server) -> None:
    html(server, f'<a href="{NAME}#sha256={ITEM.sha256}">x</a>')
    server.busy = 2
    assert ITEM.sha256 in finder(server).addresses([ITEM])
    server.busy = 3
    with pytest.raises(FetchError, match="answers 503"):
        finder(server).addresses([ITEM])


def test_a_page_that_is_cut_short_is_asked_for_again(server: Server) -> None:
    server.index("tiny-x", {"filename": NAME, "url": NAME, "hashes": {"sha256": ITEM.sha256}})
    server.broken = 2
    assert ITEM.sha256 in finder(server).addresses([ITEM])


def test_folders_of_this_machine_come_first_and_only_with_the_right_file(server: Server, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(WHEEL)
    assert finder(server, folders=(tmp_path,)).addresses([ITEM]) == {ITEM.sha256: Address(path=tmp_path / NAME, size=5)}
    assert server.asked == []
    (tmp_path / NAME).write_bytes(b"built")
    html(server, f'<a href="{NAME}#sha256={ITEM.sha256}">x</a>')
    assert finder(server, folders=(tmp_path,)).addresses([ITEM])[ITEM.sha256].path is None


@pytest.mark.parametrize("listed", [True, False])
def test_an_index_may_be_a_folder(server: Server, tmp_path: Path, listed: bool) -> None:
    folder = tmp_path / "simple" / "tiny-x"
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(WHEEL)
    if listed:
        (folder / "index.html").write_text(f'<a href="{NAME.replace("+", "%2B")}#sha256={ITEM.sha256}">x</a>')
    places = Places((f"{server.url}/simple", (tmp_path / "simple").as_uri()))
    local = Finder(places, local_only=True)
    other = Item("o.whl", "1" * 64, 1, FromIndex("o", "1"))
    assert local.addresses([ITEM, other]) == {ITEM.sha256: Address(path=folder / NAME, size=5)}
    assert server.asked == []
    assert Finder(places).addresses([ITEM]) == {ITEM.sha256: Address(path=folder / NAME, size=5)}
    assert server.asked == ["/simple/tiny-x/"]


def test_a_file_with_an_address_of_its_own(server: Server) -> None:
    item = Item("a.whl", "1" * 64, 7, FromUrl("http://elsewhere.example/x/a.whl"))
    assert finder(server).addresses([item]) == {"1" * 64: Address("http://elsewhere.example/x/a.whl", size=7)}
    mirrored = Finder(Places((), files="http://192.168.1.5/files/{filename}"))
    assert mirrored.addresses([item])["1" * 64].url == "http://192.168.1.5/files/a.whl"


def test_a_login_is_sent_to_its_own_host_only_and_never_said(server: Server) -> None:
    server.password = "Basic dXNlcjpwOnc="  # user:p:w
    html(server, f'<a href="{NAME}#sha256={ITEM.sha256}">x</a>')
    with_login = server.url.replace("http://", "http://user:p%3Aw@")
    found = Finder(Places((f"{with_login}/simple",)))
    assert found.addresses([ITEM])[ITEM.sha256].url == f"{server.url}/simple/tiny-x/{NAME}"
    absent = Item("a.whl", "1" * 64, 7, FromIndex("absent", "1"))
    with pytest.raises(FetchError) as caught:
        found.addresses([absent])
    assert server.url in str(caught.value) and "p%3Aw" not in str(caught.value)
    with Server() as other:
        server.moved["/away"] = other.add("/there", b"x")
        with web.opener([with_login])(urllib.request.Request(f"{server.url}/away")) as answer:
            assert answer.read() == b"x"
        assert server.logins[-1] == server.password
        assert other.logins == [None]


def test_authorities_of_pip_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_CERT", raising=False)
    assert web.authorities() is None
    monkeypatch.setenv("PIP_CERT", str(tmp_path))
    assert isinstance(web.authorities(), ssl.SSLContext)
    (tmp_path / "ca.pem").write_text("no certificate")
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "ca.pem"))
    with pytest.raises(FetchError, match=r"PIP_CERT names .*ca\.pem: "):
        web.authorities()


def test_what_is_no_page_is_no_page() -> None:
    assert page.links(b'{"files": [1, {"filename": "x"}]}', page.JSON, "http://h/") == []
    for body, kind in [(b"<html>", page.JSON), (b"[]", page.JSON), (b"x", ""), (b"x", "text/plain")]:
        with pytest.raises(ValueError):
            page.links(body, kind, "http://h/")
