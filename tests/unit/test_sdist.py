"""A source archive with patches in it: the same bytes everywhere, and none that is not what it says."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from gpufleet import sdist
from gpufleet.patches import Patch, PatchError, Series

PATCH = """\
--- a/pkg/value.py
+++ b/pkg/value.py
@@ -1 +1 @@
-VALUE = 1
+VALUE = 2
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-old
--- /dev/null
+++ b/new.txt
@@ -0,0 +1 @@
+new
"""
SERIES = Series((Patch("0001-two.patch", PATCH),))
FILES = {"setup.py": (b"setup\n", 0o755), "pkg/value.py": (b"VALUE = 1\n", 0o664), "gone.txt": (b"old\n", 0o644)}


def archive(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> tuple[Path, str]:
    with tarfile.open(path, "w:gz") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def member(name: str, mode: int = 0o644, mtime: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode, info.mtime, info.type = mode, mtime, kind
    return info


def released(path: Path, mtime: int = 5, reverse: bool = False) -> tuple[Path, str]:
    names = sorted(FILES, reverse=reverse)
    folder = (member("pkg-1.0", 0o775, mtime, tarfile.DIRTYPE), b"")
    return archive(
        path, [folder, *((member(f"pkg-1.0/{name}", FILES[name][1], mtime), FILES[name][0]) for name in names)]
    )


def content(data: bytes) -> dict[str, tuple[bytes, int]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = {}
        for info in tar:
            file = tar.extractfile(info)
            assert file is not None and (info.mtime, info.uid, info.uname) == (sdist.TIME, 0, "")
            found[info.name] = (file.read(), info.mode)
        return found


def test_the_series_is_applied_and_the_rest_is_as_it_was(tmp_path: Path) -> None:
    done = sdist.patched(*released(tmp_path / "pkg-1.0.tar.gz"), SERIES)
    assert content(done.data) == {
        "pkg-1.0/setup.py": (b"setup\n", 0o755),
        "pkg-1.0/pkg/value.py": (b"VALUE = 2\n", 0o644),
        "pkg-1.0/new.txt": (b"new\n", 0o644),
    }
    assert done.filename == f"pkg-1.0+gpufleet.{SERIES.digest[:8]}.tar"
    assert done.sha256 == hashlib.sha256(done.data).hexdigest()


def test_the_same_content_gives_the_same_bytes_and_another_patch_others(tmp_path: Path) -> None:
    first = sdist.patched(*released(tmp_path / "pkg-1.0.tar.gz"), SERIES)
    again = sdist.patched(*released(tmp_path / "pkg-1.0.tar.gz", mtime=99, reverse=True), SERIES)
    assert (again.sha256, again.filename) == (first.sha256, first.filename)
    other = Series((Patch("0001-two.patch", PATCH.replace("= 2", "= 3")),))
    assert sdist.patched(*released(tmp_path / "pkg-1.0.tar.gz"), other).sha256 != first.sha256


def test_another_archive_is_refused(tmp_path: Path) -> None:
    path, found = released(tmp_path / "pkg-1.0.tar.gz")
    with pytest.raises(sdist.SdistError, match=f"sha256 is {found}, the stack says 0000"):
        sdist.patched(path, "0" * 64, SERIES)


def test_a_patch_that_does_not_fit_names_the_archive(tmp_path: Path) -> None:
    path, found = archive(tmp_path / "pkg-2.0.tar.gz", [(member("pkg-2.0/pkg/value.py"), b"VALUE = 7\n")])
    with pytest.raises(PatchError, match=r"0001-two.patch:\d+: pkg/value.py, hunk 1: .* \(in pkg-2.0.tar.gz\)"):
        sdist.patched(path, found, SERIES)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("../up", tarfile.REGTYPE, "leaves the archive's folder"),
        ("/etc/passwd", tarfile.REGTYPE, "leaves the archive's folder"),
        ("pkg-1.0/link", tarfile.SYMTYPE, "is no file in a folder"),
        ("alone", tarfile.REGTYPE, "is no file in a folder"),
        ("other-1.0/file", tarfile.REGTYPE, "has 2 folders"),
    ],
)
def test_what_a_source_archive_does_not_hold_is_refused(tmp_path: Path, name: str, kind: bytes, said: str) -> None:
    path, found = archive(
        tmp_path / "pkg-1.0.tar.gz", [(member("pkg-1.0/setup.py"), b"x"), (member(name, kind=kind), b"")]
    )
    with pytest.raises(sdist.SdistError, match=said):
        sdist.patched(path, found, Series())


def test_half_an_archive_is_refused(tmp_path: Path) -> None:
    path, _ = released(tmp_path / "pkg-1.0.tar.gz")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(sdist.SdistError, match=r"cannot be read"):
        sdist.patched(path, hashlib.sha256(path.read_bytes()).hexdigest(), Series())
