"""Sources become wheels and wheels get patches of other authors: the same bytes everywhere, named by what went in."""

from __future__ import annotations

import csv
import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gpufleet.parts import Source
from gpufleet.patches import PatchError
from gpufleet.wheelhouse import source as module
from gpufleet.wheelhouse.git import Git, GitError
from gpufleet.wheelhouse.pack import WheelError
from gpufleet.wheelhouse.source import build, content_digest
from tests.unit.repositories import commit

FILES = {
    "lib/quick/__init__.py": b"x = 1\n",
    "lib/quick/csrc/forward.cu": b"__global__ void f() {}\n" * 100,
    "lib/more/__init__.py": b"",
    "setup.py": b"raise SystemExit('never run')\n",
    "tests/test_quick.py": b"",
}
PATCH = "--- a/lib/quick/__init__.py\n+++ b/lib/quick/__init__.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
NEW = "--- /dev/null\n+++ b/{}\n@@ -0,0 +1 @@\n+y = 1\n"
GONE = "--- a/lib/quick/__init__.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x = 2\n"


class World:
    """A repository, the owner's patches, and the controller's folders."""

    def __init__(self, root: Path) -> None:
        self.root, self.patches, self.out = root, root / "patches", root / "out"
        self.git = Git(root / "cache", f"file://{root}/mirror/{{path}}")
        self.commit = commit(root / "mirror" / "a" / "quick", FILES)
        self.series({"0001-two.patch": PATCH})

    def series(self, patches: dict[str, str]) -> None:
        folder = self.patches / "quick-1"
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name, text in patches.items():
            (folder / name).write_text(text)
        (folder / "series").write_text("".join(f"{name}\n" for name in patches))

    def source(self, **other: Any) -> Source:
        packages = ["lib/quick", "lib/more"]
        said = {
            "name": "quick-kernels",
            "version": "0.1.0",
            "git": "https://example.org/a/quick",
            "commit": self.commit,
            "sha256": content_digest({path: FILES[path] for path in FILES if path.startswith("lib/")}),
            "packages": packages,
        }
        return Source.model_validate(said | other)

    def build(self, **other: Any) -> Path:
        return build(self.source(**other), self.patches, self.out, self.git).path


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as packed:
        assert packed.testzip() is None
        return {name: packed.read(name) for name in packed.namelist()}


def test_only_the_packages_go_in_patched_with_a_right_record(world: World) -> None:
    made = build(world.source(patches="quick-1"), world.patches, world.out, world.git)
    assert made.path.name == f"quick_kernels-{made.local_version}-py3-none-any.whl"
    assert made.local_version.startswith("0.1.0+gpufleet.")
    assert made.sha256 == hashlib.sha256(made.path.read_bytes()).hexdigest()
    found, info = contents(made.path), f"quick_kernels-{made.local_version}.dist-info"
    assert list(found) == [
        "more/__init__.py",
        "quick/__init__.py",
        "quick/csrc/forward.cu",
        f"{info}/METADATA",
        f"{info}/WHEEL",
        f"{info}/RECORD",
    ]
    assert found["quick/__init__.py"] == b"x = 2\n"
    assert found["quick/csrc/forward.cu"] == FILES["lib/quick/csrc/forward.cu"]
    metadata = found[f"{info}/METADATA"].decode()
    assert f"Name: quick-kernels\nVersion: {made.local_version}\n" in metadata and "Requires" not in metadata
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(found.pop(f"{info}/RECORD").decode()))}
    assert rows.pop(f"{info}/RECORD") == ["", ""]
    assert {name: row[1] for name, row in rows.items()} == {name: str(len(it)) for name, it in found.items()}


def test_pip_installs_it_and_finds_nothing_amiss(world: World) -> None:
    made = build(world.source(patches="quick-1"), world.patches, world.out, world.git)
    target = world.root / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    command = [*pip, "install", "-q", "--no-index", "--target", str(target), str(made.path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (target / "quick" / "csrc" / "forward.cu").is_file()
    seen = subprocess.run([*pip, "list", "--path", str(target)], check=True, capture_output=True, text=True).stdout
    assert seen.splitlines()[-1].split() == ["quick-kernels", made.local_version]


def test_same_bytes_on_another_machine_without_compression(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other")  # another commit object: its time may differ, its files do not
    one, two = world.build(patches="quick-1"), other.build(patches="quick-1", commit=other.commit)
    assert one.name == two.name and one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as packed:
        assert {item.compress_type for item in packed.infolist()} == {zipfile.ZIP_STORED}
        assert {item.date_time for item in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_modes_in_the_repository_do_not_count(world: World) -> None:
    one = world.build()
    (world.root / "mirror/a/quick/lib/quick/__init__.py").chmod(0o755)
    changed = commit(world.root / "mirror" / "a" / "quick", {})
    assert changed != world.commit
    world.out = world.root / "out-2"
    assert world.build(commit=changed).read_bytes() == one.read_bytes()


def test_a_changed_byte_of_a_patch_makes_another_version(world: World) -> None:
    names = [world.build(), world.build(patches="quick-1")]
    world.series({"0001-two.patch": "Another header\n" + PATCH})
    names.append(world.build(patches="quick-1"))
    assert len({path.name for path in names}) == 3


def test_the_second_time_nothing_is_fetched(world: World) -> None:
    first = world.build(patches="quick-1")
    world.git = Git(world.root / "nothing", offline=True)
    assert world.build(patches="quick-1") == first


def test_a_wrong_sum_names_the_right_one_and_leaves_nothing(world: World) -> None:
    right = world.source().sha256
    with pytest.raises(WheelError, match=f"have sha256 {right}, the stack says 0000.* write {right} into the page"):
        world.build(sha256="0" * 64)
    assert list(world.out.iterdir()) == []


def test_the_sum_is_of_paths_and_contents() -> None:
    """By the definition, so that anybody can count it."""
    pair = hashlib.sha256(b"p/a.py").digest() + hashlib.sha256(b"1").digest()
    other = hashlib.sha256(b"p/b.py").digest() + hashlib.sha256(b"2").digest()
    assert content_digest({"p/b.py": b"2", "p/a.py": b"1"}) == hashlib.sha256(pair + other).hexdigest()


def test_a_patch_may_make_and_remove_files_of_the_packages_only(world: World) -> None:
    world.series({"1.patch": PATCH, "2.patch": NEW.format("lib/quick/y.py"), "3.patch": GONE})
    assert [name for name in contents(world.build(patches="quick-1")) if "dist-info" not in name] == [
        "more/__init__.py",
        "quick/csrc/forward.cu",
        "quick/y.py",
    ]
    world.series({"1.patch": NEW.format("other/y.py")})
    with pytest.raises(WheelError, match=r"makes other/y\.py, which is in none of lib/quick, lib/more"):
        world.build(patches="quick-1")
    world.series({"1.patch": PATCH.replace("lib/quick/__init__", "setup")})
    with pytest.raises(PatchError, match=r"setup\.py: no such file in the tree"):
        world.build(patches="quick-1")


def test_packages_of_one_name_are_refused(world: World) -> None:
    changed = {**FILES, "old/quick/__init__.py": b""}
    at = commit(world.root / "mirror" / "a" / "quick", changed)
    packages = ["lib/quick", "old/quick"]
    sum_of = content_digest({path: changed[path] for path in changed if path.startswith(tuple(packages))})
    with pytest.raises(WheelError, match="two of its packages have one name"):
        world.build(commit=at, packages=packages, sha256=sum_of)


def test_patches_of_another_repository(world: World) -> None:
    text = ("Subject: two\n\n" + PATCH).encode()
    at = commit(world.root / "mirror" / "b" / "patches", {"a.patch": text})
    file = {"path": "a.patch", "sha256": hashlib.sha256(text).hexdigest()}
    theirs = {"git": "https://example.org/b/patches", "commit": at, "files": [file]}
    made = world.build(patches_from=theirs)
    assert contents(made)["quick/__init__.py"] == b"x = 2\n"
    world.series({"a.patch": text.decode()})
    assert world.build(patches="quick-1") == made, "what counts is what a patch holds, not where it lies"
    with pytest.raises(GitError, match="the stack says 0000"):
        world.build(patches_from={**theirs, "files": [{**file, "sha256": "0" * 64}]})


def test_a_version_that_is_none_is_refused(world: World) -> None:
    with pytest.raises(ValidationError, match="is no version of a Python package"):
        world.build(version="latest")


def test_the_marks_of_a_pure_wheel() -> None:
    assert "Root-Is-Purelib: true\nTag: py3-none-any\n" in module.WHEEL
