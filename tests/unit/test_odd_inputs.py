"""Damaged and odd inputs of `fetch`, `stacks check` and `patches check`: an error with its cause, never a traceback."""

from __future__ import annotations

import errno
import io
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpufleet import yaml_page
from gpufleet.cli import main
from gpufleet.errors import ConfigError
from gpufleet.patches import Patch, PatchError, Series
from gpufleet.patching import apply
from gpufleet.wheelhouse import git, lock_input, page
from gpufleet.wheelhouse.store import default_root
from hostkit import fetch, files
from tests.unit.servers import Server, sha256
from tests.unit.tiny_stack import Tiny

ENGINE = "engine-1.0-py3-none-any.whl"
INPUT = (
    "# gpufleet: platform x86_64-manylinux_2_35\n# gpufleet: exclude-newer 2026-08-20\n# gpufleet: repacked engine\n"
)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiny]:
    with Server() as server:
        made = Tiny(tmp_path / "owner", server)
        monkeypatch.chdir(made.root)
        for name, value in {
            "PIP_INDEX_URL": f"{server.url}/simple",
            "PIP_FIND_LINKS": "",
            "GPUFLEET_STORE": str(tmp_path / "store"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }.items():
            monkeypatch.setenv(name, value)
        yield made


def call(*arguments: str) -> Result:
    done = CliRunner().invoke(main, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def wanted(tiny: Tiny, *more: str) -> tuple[str, ...]:
    return (
        "fetch",
        "--stack",
        "tiny",
        "--python",
        "3.11",
        "--set",
        f"mirrors.git=file://{tiny.root}/git/{{path}}",
        *more,
    )


@pytest.mark.parametrize("address", ["http://[x/simple", "http://me:secret@[x/simple", "~nobody-has-this-name/wheels"])
@pytest.mark.parametrize("variable", ["PIP_INDEX_URL", "PIP_FIND_LINKS"])
def test_what_is_no_address(tiny: Tiny, monkeypatch: pytest.MonkeyPatch, variable: str, address: str) -> None:
    monkeypatch.setenv(variable, address)
    done = call(*wanted(tiny))
    assert done.exit_code == 1 and "Mend that in" in done.output and "secret" not in done.output


@pytest.mark.parametrize("address", ["http://[x/simple", "http://127.0.0.1:99999/simple", "http://127.0.0.1:x/simple"])
def test_a_setting_that_is_no_address_is_a_wrong_call(tiny: Tiny, address: str) -> None:
    done = call(*wanted(tiny, "--set", f"mirrors.pypi={address}"))
    assert done.exit_code == 2 and "mirrors.pypi" in done.output


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b"[" * 100_000, page.JSON, "no JSON"),
        (b"<![foo bar", "text/html", "no HTML"),
        (
            b'{"files":[{"filename":"%s","url":"file:///a%%00b"}]}',
            "application/vnd.pypi.simple.v1+json",
            "not be found",
        ),
    ],
)
def test_an_index_with_odd_pages(tiny: Tiny, body: bytes, kind: str, said: str) -> None:
    name = b"alpha-1.0-py3-none-any.whl"
    tiny.server.add("/simple/alpha/", body.replace(b"%s", name).replace(b"%%", b"%"), kind)
    done = call(*wanted(tiny))
    assert done.exit_code == 1 and said in done.output


def rezipped(change: Callable[[dict[str, bytes]], object]) -> Callable[[bytes], bytes]:
    def go(content: bytes) -> bytes:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            entries = {name: packed.read(name) for name in packed.namelist()}
        change(entries)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as packed:
            for name, data in entries.items():
                packed.writestr(name, data)
        return out.getvalue()

    return go


def flagged(content: bytes, offset: int, value: int) -> bytes:
    """The wheel with a byte of every entry of its directory changed."""
    changed, at = bytearray(content), content.find(b"PK\x01\x02")
    while at >= 0:
        changed[at + offset] = value
        at = content.find(b"PK\x01\x02", at + 4)
    return bytes(changed)


INFO = "engine-1.0.dist-info"
ODD: dict[str, Callable[[bytes], bytes]] = {
    "a RECORD that is no text": rezipped(lambda its: its.update({f"{INFO}/RECORD": b"\xff"})),
    "a field of RECORD too long": rezipped(lambda its: its.update({f"{INFO}/RECORD": b'"' + b"a" * 200_000 + b'"'})),
    "a METADATA that is no text": rezipped(lambda its: its.update({f"{INFO}/METADATA": b"\xff"})),
    "no requirement": rezipped(lambda its: its.update({f"{INFO}/METADATA": b"Name: engine\nRequires-Dist: ;;\n"})),
    "no WHEEL": rezipped(lambda its: its.pop(f"{INFO}/WHEEL")),
    "a file that RECORD does not name": rezipped(lambda its: its.update({"other.py": b""})),
    "an unknown compression": lambda content: flagged(content, 10, 99),
    "a password": lambda content: flagged(content, 8, 1),
}


@pytest.mark.parametrize("damage", ODD)
def test_a_pinned_wheel_that_is_none(tiny: Tiny, damage: str) -> None:
    new = ODD[damage](tiny.wheels[ENGINE])
    its_page = tiny.root / "files/stacks/tiny.yaml"
    its_page.write_text(its_page.read_text().replace(sha256(tiny.wheels[ENGINE]), sha256(new)))
    link: dict[str, object] = {"filename": ENGINE, "url": f"/files/{ENGINE}", "hashes": {"sha256": sha256(new)}}
    tiny.server.add(f"/files/{ENGINE}", new)
    tiny.server.index("engine", link)
    for _ in range(2):
        done = call(*wanted(tiny))
        assert done.exit_code == 1 and f"gpufleet: tiny: {ENGINE}" in done.output, done.output
    (tiny.root / "w").mkdir()
    (tiny.root / "w" / ENGINE).write_bytes(new)
    assert call("patches", "check", "tiny", "--find-links", "w", *wanted(tiny)[5:]).exit_code in (0, 1)


def test_a_made_wheel_whose_folder_was_damaged(tiny: Tiny, tmp_path: Path) -> None:
    assert call(*wanted(tiny, "--archive", "a.tar")).exit_code == 0
    made = tmp_path / "store" / "made"
    for text in ("", "5", "[" * 100_000):
        for note in made.glob("*/moved.json"):
            note.write_text(text)
        assert call(*wanted(tiny)).exit_code == 0
    for again in (wanted(tiny), ("fetch", "--from", "a.tar")):
        for wheel in made.glob("*/*.whl"):
            wheel.unlink()
        assert call(*again).exit_code == 0
        assert len(list(made.glob("*/*.whl"))) == 2


@pytest.mark.parametrize("header", ["@@ -0,0 +0,0 @@\n", f"@@ -1,1 +1,{'9' * 5000} @@\n-x = 1\n"])
def test_a_patch_with_an_odd_hunk(header: str) -> None:
    text = f"--- a/engine/__init__.py\n+++ b/engine/__init__.py\n{header}"
    with pytest.raises(PatchError, match=r"no lines|not a unified diff"):
        apply(Series((Patch("0001.patch", text),)), lambda _: b"x = 1\n")


def test_texts_that_are_none_name_their_file(tiny: Tiny) -> None:
    locks, series = tiny.root / "files/locks", tiny.root / "files/patches/engine-1/series"
    (locks / "tiny.in").write_text(f"{INPUT}alpha\nbeta\ntorch\n")
    lock = locks / "tiny-py311.txt"
    whole = lock.read_bytes()
    for damage, said in ((whole + b"# \xff\n", "is no text"), (whole + b"\\\n", "there is only a `\\`")):
        lock.write_bytes(damage)
        for done in (call("stacks", "check", "tiny"), call(*wanted(tiny))):
            assert done.exit_code == 2 and "locks/tiny-py311.txt" in done.output and said in done.output
    lock.write_bytes(whole)
    (locks / "tiny.in").write_bytes(b"\xff")
    assert "locks/tiny.in: is no text" in call("stacks", "check", "tiny").output
    series.write_bytes(b"\xff")
    assert "series: is no text" in call("patches", "check", "tiny").output


@pytest.mark.parametrize(
    ("old", "new"),
    [("2_35", "2_999999999"), ("2_35", f"2_{'9' * 5000}"), ("2026-08-20", "2026-99-99"), ("2026-08-20", "٢٠٢٦-08-20")],
)
def test_numbers_of_an_input_that_nothing_has(old: str, new: str) -> None:
    with pytest.raises(ConfigError, match=r"is none such as|is no day"):
        lock_input.parse(INPUT.replace(old, new), "locks/tiny.in")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("title: Tiny", "title: Tiny\ntitle: Other", "'title' is there twice, again in line 5"),
        ("title: Tiny", "title: &a [*a]", "holds itself"),
        (ENGINE, "engine.whl", "no name of a wheel"),
        ('version: "1.0"', 'version: "not!a!version"', "no version of a Python package"),
        ('"3.11"', f'"3.{"9" * 5000}"', "python.0"),
        ("torch_index: http://", "torch_index: http://[/", "torch_index"),
    ],
)
def test_pages_that_are_refused(tiny: Tiny, old: str, new: str, said: str) -> None:
    its_page = tiny.root / "files/stacks/tiny.yaml"
    its_page.write_text(its_page.read_text().replace(old, new, 1))
    done = call("stacks")
    assert done.exit_code == 2 and "stacks/tiny.yaml" in done.output and said in done.output


def test_aliases_that_would_fill_the_memory() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40)]
    with pytest.raises(ValueError, match="aliases"):
        yaml_page.load("\n".join(lines))
    assert yaml_page.load("a: &a {x: 1}\nb: *a\nc: {<<: *a, x: 2}") == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 2}}


def test_an_archive_goes_only_into_a_file(tiny: Tiny) -> None:
    os.mkfifo("pipe")
    for name in ("/", "files", "pipe", "nowhere/a.tar"):
        done = call(*wanted(tiny, "--archive", name))
        assert done.exit_code == 2 and name in done.output
    assert Path("pipe").is_fifo(), "what is there and no file is not replaced by one"
    assert tiny.server.asked == [], "it is said before anything is fetched"


def test_a_store_named_from_where_the_command_is_called(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLEET_STORE", "a störe")
    assert default_root() == tiny.root / "a störe"
    done = call(*wanted(tiny))
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("word", ["../../../../x", "", "1.0; x", "--help"])
def test_against_what_is_no_version(tiny: Tiny, word: str) -> None:
    assert call("patches", "check", "tiny", "--against", word).exit_code == 2


class _Full(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, _: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_called_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Answer(io.BytesIO):
        pass

    monkeypatch.setattr("builtins.open", lambda *_: io.BufferedWriter(_Full()))
    with pytest.raises(files.Full, match="No space left"):
        list(fetch.written(str(tmp_path / "x.part"), "wb", Answer(b"x" * 10)))


def test_git_on_a_full_disk_is_called_that() -> None:
    said = git._explained("http://h/a/b", "0" * 40, "fatal: cannot mkdir .: No space left on device")
    assert "cannot be kept in the store" in said and "GPUFLEET_STORE" in said
