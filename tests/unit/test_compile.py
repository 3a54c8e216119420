"""Extensions compiled ahead: with the stack's own toolkit, for each architecture, and passed on as an archive."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hostkit import archive, compile, files, install, runtime
from hostkit.errors import Failure
from tests.unit.workshop import Workshop, wheel

# In the shape of files/compile/flashqla.py: it takes its compiler and its target from the variables.
SCRIPT = """\
import json, os, pathlib, subprocess
into = pathlib.Path(os.environ["GPUFLEET_INTO"]) / os.environ["GPUFLEET_ARCH"]
into.mkdir(parents=True)
source = into / "source.cu"
source.write_text("code for " + os.environ["TORCH_CUDA_ARCH_LIST"])
print("gpufleet: asking nvcc", flush=True)
made = subprocess.run(["nvcc", str(source)], stdout=subprocess.PIPE, check=True).stdout
source.unlink()
(into / "engine.so").write_bytes(made)
(into / "seen.json").write_text(json.dumps(dict(os.environ)))
"""
INTO = "engine/prebuilt"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch)


def spec_of(box: Workshop, script: str = SCRIPT, **other: Any) -> dict[str, Any]:
    engine = box.stock(*wheel("engine", "1.0", {"engine/__init__.py": "", f"{INTO}/README": "what is compiled\n"}))
    step = {"name": "kernels", "script": script, "into": INTO}
    return box.spec(engine, **{"toolkit": "13-0", "archs": ["sm75"], "compile": [step], **other})


@pytest.fixture
def unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards, torch and a compiler of the toolkit's are what a box has; here the compiling is looked at."""
    monkeypatch.setattr(runtime.verify, "run", lambda *_: {})


def prebuilt(answer: dict[str, Any]) -> Path:
    (found,) = Path(answer["path"]).glob(f"lib/python*/site-packages/{INTO}")
    return found


@pytest.mark.usefixtures("unverified")
def test_a_script_fills_its_folder_for_each_architecture(box: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    home = box.toolkit()
    answer = runtime.run(spec_of(box, archs=["sm75", "sm86"]))
    made = prebuilt(answer)
    assert (made / "sm75/engine.so").read_text() == "code for 7.5"
    assert (made / "sm86/engine.so").read_text() == "code for 8.6"
    seen = json.loads((made / "sm86/seen.json").read_text())
    assert seen["CUDA_HOME"] == str(home)
    assert seen["PATH"].split(":")[1:] == [f"{home}/bin", "/usr/bin", "/bin"]
    assert seen["GPUFLEET_ARCHS"] == "sm75 sm86" and seen["FLASHINFER_CUDA_ARCH_LIST"] == "7.5 8.6"
    assert not {"CC", "CXX"} & set(seen)
    told = [json.loads(line)["message"] for line in capsys.readouterr().out.splitlines()]
    assert "asking nvcc" in told
    # what a compiler or a script made private can be read by the services' user
    assert (made / "sm75").stat().st_mode & 0o777 == 0o755


@pytest.mark.usefixtures("unverified")
def test_the_archive_holds_what_was_made_and_like_boxes_need_no_compiler(box: Workshop) -> None:
    home = box.toolkit()
    first = runtime.run(spec_of(box))
    made = first["compiled"]
    assert made["filename"] == "engine-1-compiled.tar" and files.sha256(str(box.stored(made))) == made["sha256"]
    with tarfile.open(box.stored(made)) as inside:
        code, *compiled = inside.getnames()
    assert compiled == [f"{INTO}/sm75/engine.so", f"{INTO}/sm75/seen.json"]
    assert code == f"engine/__pycache__/__init__.cpython-{sys.version_info.major}{sys.version_info.minor}.pyc"
    wanted = (prebuilt(first) / "sm75/engine.so").read_bytes()
    os.rename(first["path"], box.root / "elsewhere")
    (home / "bin/nvcc").unlink()
    second = runtime.run(spec_of(box, compiled={key: made[key] for key in made if key != "size"}))
    assert (prebuilt(second) / "sm75/engine.so").read_bytes() == wanted
    assert second["compiled"] == made


@pytest.mark.usefixtures("unverified")
def test_byte_code_is_passed_on_and_python_takes_it_whatever_the_time_of_its_source(
    box: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.toolkit()
    first = runtime.run(spec_of(box))
    (code,) = Path(first["path"]).glob("lib/python*/site-packages/engine/__pycache__/*.pyc")
    wanted = code.read_bytes()
    os.rename(first["path"], box.root / "elsewhere")
    calls: list[list[str]] = []
    step = install.step
    monkeypatch.setattr(
        install, "step", lambda spec, tree, arguments, env: (calls.append(arguments), step(spec, tree, arguments, env))
    )
    runtime.run(spec_of(box, compiled=first["compiled"]))
    assert not any("--compile-bytecode" in call for call in calls)
    assert code.read_bytes() == wanted
    source = code.parent.parent / "__init__.py"
    os.utime(source, (1, 1))
    found = subprocess.run(
        [sys.executable, "-v", "-B", "-c", "import engine"],
        env={**os.environ, "PYTHONPATH": str(source.parent.parent)},
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    ).stderr
    assert f"{code} matches {source}" in found


@pytest.mark.usefixtures("unverified")
def test_an_archive_of_a_newer_system_or_a_damaged_one_is_not_used(box: Workshop) -> None:
    box.toolkit()
    made = runtime.run(spec_of(box))["compiled"]
    for known in ({**made, "glibc": "99.1"}, {**made, "sha256": "0" * 64}):
        files.with_suppressed_unlink(str(box.root / "opt/runtimes/engine-1" / files.COMPLETE))
        again = runtime.run(spec_of(box, compiled=known))
        assert (prebuilt(again) / "sm75/engine.so").read_text() == "code for 7.5"


def fails(box: Workshop, spec: dict[str, Any], words: str) -> Failure:
    with pytest.raises(Failure, match=words) as caught:
        runtime.run(spec)
    assert box.runtimes == []
    return caught.value


def test_a_compile_that_fails_names_the_step_its_last_lines_and_a_remedy(box: Workshop) -> None:
    home = box.toolkit()
    box.program("nvcc", "#!/bin/sh\necho 'engine.cu(3): error: no such thing' >&2; exit 2\n", home / "bin")
    failure = fails(box, spec_of(box), r"compiling kernels for sm75 failed: .*engine\.cu\(3\): error")
    assert f"{home}/bin/nvcc" in failure.remedy and failure.everywhere


def test_a_compile_that_is_killed_says_so(box: Workshop) -> None:
    box.toolkit()
    script = "import os; os.kill(os.getpid(), 9)"
    assert not fails(box, spec_of(box, script), "compiling kernels for sm75 was ended by signal 9").everywhere
    script = "print(\"nvcc error   : 'cicc' died due to signal 9 (Kill signal)\"); raise SystemExit(1)"
    assert not fails(box, spec_of(box, script), "compiling kernels for sm75 failed: .*signal 9").everywhere


def test_a_script_that_makes_nothing_is_an_error(box: Workshop) -> None:
    box.toolkit()
    assert fails(box, spec_of(box, "print('all is well')"), f"compiling kernels left nothing in {INTO}").everywhere


def test_without_the_toolkit_nothing_else_is_compiled_with(box: Workshop) -> None:
    box.toolkit("12.9")
    (box.root / "usr/local/cuda").symlink_to("cuda-12.9")
    failure = fails(box, spec_of(box), r"there is no CUDA compiler .*/cuda-13\.0/bin/nvcc")
    assert "cuda-toolkit-13-0" in failure.remedy and not failure.everywhere


@pytest.mark.parametrize(
    ("arch", "capability"), [("sm75", "7.5"), ("sm86", "8.6"), ("sm100", "10.0"), ("sm121", "12.1")]
)
def test_an_architecture_is_a_capability(arch: str, capability: str) -> None:
    assert compile.capability(arch) == capability


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.size = kind, link, 1 if kind == tarfile.REGTYPE else 0
    return found


@pytest.mark.parametrize(
    "bad",
    [
        entry("../outside"),
        entry("/etc/outside"),
        entry(f"{INTO}/../../../outside"),
        entry(f"{INTO}/./x"),
        entry("engine/__init__.py"),
        entry(f"{INTO}x/y"),
        entry(f"{INTO}/link", tarfile.SYMTYPE, "/etc/passwd"),
        entry(f"{INTO}/hard", tarfile.LNKTYPE, f"{INTO}/good"),
        entry(f"{INTO}/device", tarfile.CHRTYPE),
        entry(f"{INTO}/folder", tarfile.DIRTYPE),
        entry(f"{INTO}/through/x"),
    ],
    ids=lambda item: f"{item.name}-{item.type!r}",
)
def test_an_archive_can_write_only_plain_files_into_its_folders(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    root, path = tmp_path / "packages", tmp_path / "made.tar"
    (root / INTO).mkdir(parents=True)
    (root / INTO / "through").symlink_to(tmp_path)
    with tarfile.open(path, "w") as made:
        for item in (entry(f"{INTO}/good"), bad):
            made.addfile(item, io.BytesIO(b"x" * item.size))
    with pytest.raises(Failure, match=r"made\.tar is not used"):
        archive.unpack(str(path), str(root), [INTO])
    assert sorted(os.listdir(tmp_path)) == ["made.tar", "packages"]
    assert os.listdir(root / INTO) == ["through"]


def test_an_archive_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "made.tar").write_bytes(b"<html>" * 200)
    with pytest.raises(Failure, match="cannot be read"):
        archive.unpack(str(tmp_path / "made.tar"), str(tmp_path), [INTO])


def test_the_same_files_make_the_same_archive(tmp_path: Path) -> None:
    made = []
    for number in range(2):
        root = tmp_path / str(number)
        root.mkdir()
        names = ["b.so", "a.so"] if number else ["a.so", "b.so"]
        for name in names:
            (root / name).write_text(name)
            os.utime(root / name, (number, number))
            (root / name).chmod(0o700 if name == "a.so" else 0o600)
        archive.make(str(tmp_path / f"{number}.tar"), str(root), names)
        made.append((tmp_path / f"{number}.tar").read_bytes())
    assert made[0] == made[1]
