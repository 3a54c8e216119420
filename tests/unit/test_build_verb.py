"""The verb `build`: a wheel in the box's store, whole, or nothing under any name; each failure with what to do."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hostkit import build, compiling, files, install, shell, space, store
from hostkit.errors import Failure

# In place of uv: makes an environment that is only there, and builds by what the source says.
UV = r"""#!/bin/sh
case "$1" in
venv) for last in "$@"; do :; done; mkdir -p "$last/bin"; echo made >> "$last/made";;
build) for last in "$@"; do :; done
  while [ $# -gt 0 ]; do [ "$1" = --out-dir ] && out=$2; shift; done
  mkdir -p "$out"; cd "$last" && . ./build.sh;;
esac
"""
WHEEL = "tiny-1.0+gpufleet.12345678-py3-none-any.whl"
GOOD = f'touch CMakeCache.txt; mkdir CMakeFiles .deps; echo "[1/2] a"; cp tiny.whl "$out/{WHEEL}"'


def zipped(names: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in names.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A box of its own for each test."""
    monkeypatch.setattr(files, "ROOT", str(tmp_path))
    monkeypatch.setattr(store, "ROOT", str(tmp_path / "store"))
    monkeypatch.setattr(build, "BUILDS", str(tmp_path / "builds"))
    monkeypatch.setattr(space, "SPARE", 0)
    monkeypatch.setattr(os, "sync", lambda: None)
    return tmp_path


def stocked(filename: str, data: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    path = Path(store.path(filename, digest))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"filename": filename, "sha256": digest, "size": len(data)}


def spec(script: str, **other: Any) -> dict[str, Any]:
    """A build whose source runs `script` in its own folder, with `$out` for the wheel."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in {"build.sh": script.encode(), "tiny.whl": zipped({"tiny.py": b"x = 1\n"})}.items():
            info = tarfile.TarInfo(f"tiny-1.0/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return {
        "name": "tiny-1.0-abc",
        "distribution": "tiny",
        "version": "1.0+gpufleet.12345678",
        "source": stocked("tiny-1.0.tar", data.getvalue()),
        "python": "3.11",
        "uv": stocked("uv-1-py3-none-any.whl", zipped({"uv-1.data/scripts/uv": UV.encode()})),
        "lock": "",
        "files": [stocked("wheel-1-py3-none-any.whl", zipped({"wheel.py": b""}))],
        "env": {"MAX_JOBS": "3"},
        **other,
    }


def left(root: Path) -> list[str]:
    """What lies in the folder of builds, but for an environment and a log."""
    found = sorted(str(path.relative_to(root)) for path in (root / "builds").rglob("*"))
    return [name for name in found if "/environment" not in name and not name.endswith(("/log", ".building"))]


def test_the_wheel_is_in_the_store_and_nothing_else_is_left(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = build.run(spec(GOOD))
    wheel = answer["wheel"]
    path = Path(store.path(wheel["filename"], wheel["sha256"]))
    assert wheel["filename"] == WHEEL
    assert wheel["glibc"] == (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[-1]
    assert (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size) == (wheel["sha256"], wheel["size"])
    assert path.stat().st_mode & 0o777 == 0o644
    assert left(root) == ["builds/tiny-1.0-abc.json"]
    assert not (root / "builds" / ".tiny-1.0-abc.building").exists()
    assert "MAX_JOBS=3" in capsys.readouterr().out


def test_the_second_time_nothing_is_built_unless_the_wheel_is_gone(root: Path) -> None:
    question = spec(f'echo ran >> "{root}/runs"; {GOOD}')
    wheel = build.run(question)["wheel"]
    assert build.run(question) == {"wheel": wheel, "seconds": 0}
    assert (root / "runs").read_text() == "ran\n"
    Path(store.path(wheel["filename"], wheel["sha256"])).unlink()
    assert build.run(question)["wheel"] == wheel
    assert (root / "runs").read_text() == "ran\nran\n"


def test_after_a_failure_its_leavings_are_gone_and_its_environment_and_log_are_there(root: Path) -> None:
    failing = f'{GOOD}; echo "a.cu(3): error: no such thing"; exit 1'
    with pytest.raises(Failure) as caught:
        build.run(spec(failing))
    directory = root / "builds" / ".tiny-1.0-abc.building"
    assert caught.value.cause == "building tiny failed: a.cu(3): error: no such thing"
    assert caught.value.remedy.endswith(f"its whole output is in {directory}/log on the box")
    assert (directory / "log").read_text() == "[1/2] a\na.cu(3): error: no such thing\n"
    assert left(root) == []
    assert not list((root / "store").rglob("tiny-*.whl"))
    # The next attempt finds nothing of it, and makes no environment again.
    build.run(spec(f'[ -e CMakeCache.txt ] && exit 1; wc -l < ../../environment/made > "{root}/made"; {GOOD}'))
    assert (root / "made").read_text().strip() == "1"


def test_a_build_that_was_killed_is_begun_anew(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = root / "builds" / ".tiny-1.0-abc.building" / "source" / "tiny-1.0"
    for name in ("build", ".deps", "CMakeFiles"):
        (source / name).mkdir(parents=True)
    (source / "CMakeCache.txt").write_text("half")
    (root / "builds" / ".tiny-1.0-abc.building" / "environment" / "bin").mkdir(parents=True)  # without its mark
    build.run(spec(f"[ -e CMakeCache.txt ] && exit 1; [ -d build ] && exit 1; {GOOD}"))
    assert "an earlier build of tiny-1.0-abc did not end" in capsys.readouterr().out
    assert left(root) == ["builds/tiny-1.0-abc.json"]


@pytest.mark.parametrize(
    ("script", "cause", "remedy", "everywhere"),
    [
        ("echo \"nvcc error   : 'cicc' died due to signal 9 (Kill signal)\"; exit 1", "signal 9", "for 3 comp", False),
        ("echo 'c++: fatal error: Killed signal terminated program cc1plus'; exit 1", "cc1plus", "MAX_JOBS in", False),
        ("echo \"fatal: unable to access 'https://git.example/a/': Failed\"; exit 1", "fatal", "mirrors.git", False),
        ("echo first; echo last; exit 3", "failed: first; last", "read the message", True),
        ("exit 3", "it said nothing", "read the message", True),
        ("kill -9 $$", "was ended by signal 9", "read the message", False),
        ("echo 'cc1plus: error: a.o: No space left on device'; exit 1", "the file system of", "make room there", False),
        (":", "the build made nothing, not one wheel", "see whether `name`", True),
        ("cp tiny.whl $out/tiny-1.0-py3-none-any.whl", "the build made tiny-1.0-py3", "see whether `name`", True),
        (f"echo not a zip > $out/{WHEEL}", "the wheel that was built is damaged", "look at the disk", False),
    ],
)  # fmt: skip
def test_each_failure_says_why_and_what_to_do(
    root: Path, script: str, cause: str, remedy: str, everywhere: bool
) -> None:
    with pytest.raises(Failure) as caught:
        build.run(spec(script))
    assert cause in caught.value.cause and remedy in caught.value.remedy
    assert caught.value.everywhere is everywhere
    assert left(root) == []
    assert not list((root / "store").rglob("tiny-*.whl"))


def test_a_damaged_source_is_removed_and_named(root: Path) -> None:
    question = spec(GOOD)
    path = Path(store.path("tiny-1.0.tar", question["source"]["sha256"]))
    path.write_bytes(b"damaged")
    with pytest.raises(Failure, match=r"tiny-1.0.tar was damaged"):
        build.run(question)
    assert not path.exists() and left(root) == []


def test_a_disk_that_fills_up_while_the_source_is_unpacked_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(build, "unpack", full)
    with pytest.raises(Failure, match=r"the file system of .* has .* MiB free, too few for tiny-1\.0-abc") as caught:
        build.run(spec(GOOD))
    assert "gpufleet gc" in caught.value.remedy
    assert left(root) == []


def test_a_toolkit_that_is_not_there_is_said_before_anything_is_done(root: Path) -> None:
    with pytest.raises(Failure, match="there is no nvcc in /nowhere/bin"):
        build.run(spec(GOOD, env={"CUDA_HOME": "/nowhere"}))
    assert not (root / "builds").exists()


def test_what_the_build_is_given(root: Path) -> None:
    cuda = root / "cuda" / "bin"
    cuda.mkdir(parents=True)
    (cuda / "nvcc").write_text("#!/bin/sh\n")
    (cuda / "nvcc").chmod(0o755)
    env = {"CUDA_HOME": str(cuda.parent), "TORCH_CUDA_ARCH_LIST": "7.5"}
    build.run(spec(f'env > "{root}/env"; {GOOD}', env=env))
    found = dict(line.split("=", 1) for line in (root / "env").read_text().splitlines() if "=" in line)
    attempt = str(root / "builds" / ".tiny-1.0-abc.building")
    assert found["PATH"] == f"{attempt}/environment/bin:{cuda}:{shell.ENVIRONMENT['PATH']}"
    assert found["TMPDIR"] == f"{attempt}/tmp" and found["UV_OFFLINE"] == install.OFFLINE["UV_OFFLINE"]
    assert found["TORCH_CUDA_ARCH_LIST"] == "7.5"
    assert found["MAX_JOBS"] == found["CMAKE_BUILD_PARALLEL_LEVEL"]
    assert 1 <= int(found["MAX_JOBS"]) <= len(os.sched_getaffinity(0))


def test_progress_is_told_while_it_builds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.Progress, "due", lambda self, now: f"step {self.done} of {self.total}")
    build.run(spec(f'echo "[7/9] b"; {GOOD}'))
    said = [json.loads(line)["message"] for line in capsys.readouterr().out.splitlines()]
    assert "tiny: step 7 of 9" in said or "tiny: step 1 of 2" in said


def test_the_log_can_be_followed(root: Path) -> None:
    log = root / "builds" / ".tiny-1.0-abc.building" / "log"
    seen = f'n=0; until grep -q first "{log}"; do n=$((n + 1)); [ $n -lt 500 ] || exit 1; sleep 0.02; done; {GOOD}'
    build.run(spec(f"echo first; {seen}"))
