"""The scripts that look at a box and put the kit there, run by this machine's own shell in a folder of the test's."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gpufleet import kit
from hostkit import bytecode
from operations import kit_scripts

SPEC = {"packages": ["it's"]}
KIT = kit.build()


class Box:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest = folder / "gpufleet-kit.pyz"
        self.path = folder / KIT.name

    def look(self) -> str:
        return self.sh(kit_scripts.look(str(self.folder), KIT, SPEC))

    def push(self, data: bytes = KIT.data) -> str:
        return self.sh(kit_scripts.push(str(self.folder), KIT, str(self.newest)), data)

    def sh(self, script: str, stdin: bytes = b"") -> str:
        done = subprocess.run(["sh", "-c", script], input=stdin, capture_output=True, check=False)
        assert not done.stderr, done.stderr
        return done.stdout.decode()


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "kit")


def facts(answer: str) -> dict[str, Any]:
    mark, event = answer.splitlines()
    assert mark.startswith("GPUFLEET:AS:")
    return dict(json.loads(event)["facts"])


def test_a_box_without_the_kit_says_so_and_answers_once_it_has_it(box: Box) -> None:
    assert box.look().endswith("GPUFLEET:NOKIT\n")
    assert box.push() == ""
    assert facts(box.look())["packages"] == {"it's": None}
    assert os.readlink(box.newest) == KIT.name


@pytest.mark.parametrize("content", [b"", KIT.data[:-1]])
def test_a_kit_that_is_not_whole_is_none(box: Box, content: bytes) -> None:
    box.push()
    box.path.write_bytes(content)
    assert box.look().endswith("GPUFLEET:NOKIT\n")
    assert box.push() == ""
    assert "cpu" in facts(box.look())


def test_what_arrives_damaged_is_not_put_in_place(box: Box) -> None:
    assert box.push(KIT.data[:-1]) == "damaged\n"
    assert list(box.folder.iterdir()) == []


def test_pushed_twice_the_file_stays_the_same_one(box: Box) -> None:
    box.push()
    before = box.path.stat()
    box.push()
    assert box.path.stat().st_ino == before.st_ino
    assert sorted(path.name for path in box.folder.iterdir()) == [KIT.name, f"{KIT.name}.sum", box.newest.name]


def test_kits_of_other_versions_go_after_a_day_with_what_is_beside_them(box: Box) -> None:
    box.push()
    old = [box.folder / "gpufleet-kit-0123456789ab.pyz", box.folder / "gpufleet-kit-0123456789ab.pyz.sum"]
    old[0].touch()
    old[1].symlink_to("ab")
    box.push()
    assert all(os.path.lexists(path) for path in old)
    for path in old:
        os.utime(path, (0, 0), follow_symlinks=False)
    box.push()
    assert not any(os.path.lexists(path) for path in old)


# What is compiled while the probe's modules and main are imported.
COMPILED = """\
import sys
sys.path.insert(0, sys.argv[1])
sys.addaudithook(lambda event, given: event == "compile" and print(given[1]))
import hostkit.__main__, hostkit.probe
"""


@pytest.mark.parametrize("pushed", [True, False])
def test_of_a_kit_in_place_nothing_is_compiled(box: Box, tmp_path: Path, pushed: bool) -> None:
    box.push()
    plain = tmp_path / "plain.pyz"
    plain.write_bytes(KIT.data)
    command = ["python3", "-ISc", COMPILED, str(box.path if pushed else plain)]  # whose byte code it is
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert bool(done.stdout.count("hostkit/")) is not pushed, done.stdout


def test_another_python_takes_the_sources(box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte code of another version is not an error, it only is of no use."""
    monkeypatch.setattr(bytecode.importlib.util, "MAGIC_NUMBER", b"\0\0\r\n")
    plain, other = tmp_path / "plain.pyz", tmp_path / "other.pyz"
    plain.write_bytes(KIT.data)
    bytecode.add(str(plain), str(other))
    done = subprocess.run([sys.executable, "-IS", str(other), "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "use one of: probe" in done.stdout, done.stderr


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    plain = tmp_path / "plain.pyz"
    plain.write_bytes(KIT.data)
    copies = [tmp_path / "a.pyz", tmp_path / "b.pyz"]
    for copy in copies:
        subprocess.run([sys.executable, "-ISc", kit_scripts.COMPILE, str(plain), str(copy)], check=True)
    assert copies[0].read_bytes() == copies[1].read_bytes()
    with zipfile.ZipFile(io.BytesIO(copies[0].read_bytes())) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {bytecode.WHEN}
