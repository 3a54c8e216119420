"""Runtimes on an owner's bad day: scripts that leave links, programs that lost their bytes, links in the way."""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostkit import build, compiling, files, reach, runtime, space, steps
from hostkit.errors import Failure
from tests.unit.workshop import PYTHON, Workshop, wheel

INTO = "engine/prebuilt"
START = """\
import os, pathlib, shutil, sys
into, home = pathlib.Path(os.environ["GPUFLEET_INTO"]), pathlib.Path(os.environ["HOME"])
(into / "good.so").write_text("machine code")
"""
ODD = {
    "link to scratch": (
        '(home / "a.so").write_text("x"); (into / "a.so").symlink_to(home / "a.so")',
        "a.so, which is a link",
    ),
    "folder by a link": ('(home / "d").mkdir(); (into / "d").symlink_to(home / "d")', "d, which is a link"),
    "pipe": ('os.mkfifo(into / "pipe")', "pipe, which is no file"),
    "the folder itself": (
        '(home / "d").mkdir(); (home / "d/a.so").write_text("x"); shutil.rmtree(into); into.symlink_to(home / "d")',
        f"compiling kernels left {INTO}, which is a link",
    ),
    "nothing": ("shutil.rmtree(into)", f"compiling kernels left nothing in {INTO}"),
}


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch)


def locked(box: Workshop) -> dict[str, Any]:
    return box.stock(*wheel("engine", "1.0", {"engine/__init__.py": "", f"{INTO}/README": "what is compiled\n"}))


def with_script(box: Workshop, script: str) -> dict[str, Any]:
    box.toolkit()
    step = {"name": "kernels", "script": START + script, "into": INTO}
    return box.spec(locked(box), toolkit="13-0", archs=["sm75"], compile=[step])


def fails(box: Workshop, spec: dict[str, Any], words: str) -> Failure:
    with pytest.raises(Failure, match=words) as caught:
        runtime.run(spec)
    assert box.runtimes == []
    assert [path.name for path in (box.root / "opt/store").iterdir() if path.name.startswith(".")] == []
    return caught.value


@pytest.mark.parametrize(("script", "words"), ODD.values(), ids=list(ODD))
def test_what_is_no_plain_file_is_named(box: Workshop, script: str, words: str) -> None:
    """A link leads nowhere when the scratch folder is gone, like boxes lack it; a pipe is read for ever."""
    failure = fails(box, with_script(box, script), words)
    assert failure.everywhere and "the script kernels of the stack" in failure.remedy


def test_a_program_that_prints_anything_is_told_of_in_a_few_words(box: Workshop) -> None:
    failure = fails(
        box, with_script(box, "sys.stdout.write('x' * 3_000_000 + '\\nlast words'); sys.exit(3)"), "last words"
    )
    assert len(failure.cause) < 2000


def test_an_answer_is_kept_whole_however_long() -> None:
    text = f"print('ANSWER ' + 'y' * {steps.LONGEST * 3}); print('x' * {steps.LONGEST * 3})"
    lines, status = steps.follow(["/usr/bin/python3", "-c", text], {}, "ANSWER ")
    assert status == 0 and [len(line) for line in lines] == [len("ANSWER ") + steps.LONGEST * 3, steps.LONGEST + 1]


def test_an_archive_that_finds_no_room_leaves_nothing(box: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, *_: Any) -> None:
        Path(path).write_bytes(b"begun")
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(runtime.compile.archive, "make", full)
    fails(box, with_script(box, ""), f"the file system of {box.root}/opt/store .* has .* MiB free")


def test_a_built_wheel_comes_into_a_store_on_another_disk(box: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    filename, data = wheel("engine", "1.0", {"engine/__init__.py": ""})
    made = box.root / filename
    made.write_bytes(data)
    inside, replace = str(box.root / "opt/store"), os.replace

    def within(source: str, target: str) -> None:
        if not source.startswith(inside):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        replace(source, target)

    monkeypatch.setattr(build.os, "replace", within)
    found = build.stocked(str(made), {})
    assert box.stored(found).read_bytes() == data and found["size"] == len(data)
    assert not [path for path in (box.root / "opt/store").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("inodes", "total", "said"),
    [(3, 5000, r"3 free inodes \(`df -i`\), too few for it"), (4000, 5000, "MiB free"), (0, 0, "MiB free")],
)
def test_a_disk_without_inodes_is_not_said_to_lack_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inodes: int, total: int, said: str
) -> None:
    disk = SimpleNamespace(f_bavail=1 << 20, f_frsize=4096, f_favail=inodes, f_files=total)
    monkeypatch.setattr(space.os, "statvfs", lambda _: disk)
    assert re.search(said, space.full(str(tmp_path), "it").cause)


@pytest.mark.parametrize("cgroup", ["0::/system.slice/gpufleet-job-00aa.service\n", "0::/user.slice\n", None])
def test_the_verification_ends_with_the_job_it_belongs_to(
    box: Workshop, monkeypatch: pytest.MonkeyPatch, cgroup: str | None
) -> None:
    path = box.root / "cgroup"
    if cgroup:
        path.write_text(cgroup)
    monkeypatch.setattr(runtime.verify, "CGROUP", str(path))
    runtime.run(box.spec(locked(box)))
    bound = [line for line in box.told.read_text().splitlines() if "BindsTo" in line]
    assert bound == (["--property=BindsTo=gpufleet-job-00aa.service"] if "job" in (cgroup or "") else [])


def test_a_verification_that_crashes_says_in_which_lines(box: Workshop) -> None:
    """As a library does that was compiled for another processor."""
    spec = box.spec(locked(box), verify=["import os, signal; os.kill(os.getpid(), signal.SIGILL)"])
    fails(box, spec, "verifying engine-1 ended with status .*Fatal Python error: Illegal instruction.*<verify>")


def test_what_a_failed_line_says_is_told_in_a_few_words(box: Workshop) -> None:
    failure = fails(
        box, box.spec(locked(box), verify=["raise ValueError('y' * 100_000)"]), "fails with ValueError: yyy"
    )
    assert len(failure.cause) < 2000


@pytest.mark.parametrize("damage", ["gone", "cut", "closed"])
def test_a_damaged_uv_is_installed_anew(box: Workshop, damage: str) -> None:
    spec = box.spec(locked(box))
    shutil.rmtree(runtime.run(spec)["path"])
    (program,) = (box.root / "opt/kit").glob("uv-*/bin/uv")
    if damage == "closed":
        program.chmod(0o644)
    elif damage == "cut":
        program.write_bytes(program.read_bytes()[:10])
    else:
        program.unlink()
    assert runtime.run(spec)["path"]


def test_a_file_that_went_in_the_middle_is_not_called_damaged(box: Workshop) -> None:
    spec = box.spec(locked(box))
    box.stored(box.uv).unlink()
    failure = fails(box, spec, "uv-.* is gone from the box's store")
    assert "deploy again" in failure.remedy


def test_a_link_to_where_services_see_nothing_is_told_first(box: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    home = box.root / "home"
    (home / "big").mkdir(parents=True)
    (box.root / "opt/runtimes").symlink_to(home / "big")
    monkeypatch.setattr(reach, "HIDDEN", (str(home),))
    failure = fails(box, box.spec(locked(box)), f"runtimes leads to {home}/big, and services see nothing of {home}")
    assert "such as /srv" in failure.remedy


def test_a_folder_that_is_closed_to_the_services_is_named(box: Workshop) -> None:
    """As where root's umask is 077 and the owner has made the folder."""
    box.program("setpriv", '#!/bin/sh\ncase "$*" in *" -x "*/opt) exit 1; esac\n')
    (box.root / "opt").chmod(0o700)
    failure = fails(box, box.spec(locked(box)), f"gpufleet may not enter {box.root}/opt \\(mode 0700\\)")
    assert f"chmod o+x {box.root}/opt" in failure.remedy


@pytest.mark.parametrize("kind", ["file", "dangling", "link"])
def test_what_has_the_place_of_a_runtime_makes_way(box: Workshop, kind: str) -> None:
    """An owner's link to another disk, whose runtime lost its mark: what it leads to is the owner's."""
    place, elsewhere = box.root / "opt/runtimes/engine-1", box.root / "elsewhere"
    place.parent.mkdir(parents=True)
    if kind == "link":
        elsewhere.mkdir()
        (elsewhere / "theirs").write_text("")
    place.write_text("") if kind == "file" else place.symlink_to(elsewhere)
    (place.parent / ".engine-1.gone").symlink_to(elsewhere)
    runtime.run(box.spec(locked(box)))
    assert box.runtimes == ["engine-1"] and files.is_complete(str(place)) and not place.is_symlink()
    assert kind != "link" or (elsewhere / "theirs").exists()


def test_a_python_of_uvs_own_is_not_taken(box: Workshop) -> None:
    """It would be below /root, where no service can read it."""
    own = box.root / f".local/share/uv/python/cpython-{platform.python_version()}-linux-x86_64-gnu/bin"
    own.mkdir(parents=True)
    (own / f"python{PYTHON}").symlink_to(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]
    found = runtime.run(box.spec(locked(box)))["path"]
    assert str(own) not in os.readlink(f"{found}/bin/python")


def test_a_build_that_prints_without_end_of_line_is_told_of_in_a_few_words(tmp_path: Path) -> None:
    text = "import sys; sys.stdout.write('x' * 5_000_000)"
    with (tmp_path / "log").open("wb") as log:
        lines, status = compiling.follow("it", ["/usr/bin/python3", "-c", text], {}, str(tmp_path), log)
    assert status == 0 and [len(line) for line in lines] == [steps.LONGEST + 1]
    assert (tmp_path / "log").stat().st_size == 5_000_000
