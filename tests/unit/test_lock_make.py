"""Locks are made with the genuine uv, from an index of a few small wheels; the commands that do it."""

from __future__ import annotations

import io
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from gpufleet.cli import main
from gpufleet.errors import ConfigError
from gpufleet.wheelhouse import lock, lock_make
from gpufleet.wheelhouse.metadata import MetadataError, metadata
from tests.unit.servers import Server, sha256
from tests.unit.tiny_stack import wheel

INPUT = """\
# gpufleet: platform x86_64-manylinux_2_35
# gpufleet: exclude-newer 2026-08-20
# gpufleet: repacked engine
# gpufleet: drop sound
# gpufleet: constrain tool<2

engine==1.0
"""
PAGE = {
    "schema": 1, "name": "small", "title": "small", "engine": "vllm", "python": ["3.12", "3.11"], "arch": ["cpu"],
    "lock": "small", "uv": {"version": "0.13.9", "sha256": "a" * 64},
    "wheels": [{"name": "engine", "version": "1.0", "filename": "engine-1.0-py3-none-any.whl", "sha256": "a" * 64,
                "drop_requires": ["sound"]}],
}  # fmt: skip
WHEELS = {
    "engine-1.0-py3-none-any.whl": ("engine", "1.0", ["sound", "tool[fast]>=1", "old; python_version < '3.12'"]),
    "sound-1.0-py3-none-any.whl": ("sound", "1.0", []),
    "tool-1.5-py3-none-any.whl": ("tool", "1.5", ["speed==3; extra == 'fast'", "win; sys_platform == 'win32'"]),
    "tool-2.0-py3-none-any.whl": ("tool", "2.0", []),
    "speed-3-py3-none-any.whl": ("speed", "3", []),
    "speed-3-cp38-abi3-manylinux_2_28_x86_64.whl": ("speed", "3", []),
    "speed-3-cp38-abi3-manylinux_2_39_x86_64.whl": ("speed", "3", []),
    "old-1-py3-none-any.whl": ("old", "1", []),
}


@pytest.fixture
def server() -> Iterator[Server]:
    """An index with the wheels; tool 1.6 was published later than the input takes."""
    with Server() as found:
        pages: dict[str, list[dict[str, object]]] = {}
        later = {"tool-1.6-py3-none-any.whl": ("tool", "1.6", ["never"])}
        for filename, (name, version, needs) in {**WHEELS, **later}.items():
            data = wheel(name, version, {f"{name}.py": b"x = 1\n"}, needs)
            day = "2026-09-01" if filename in later else "2026-08-01"
            link = {"filename": filename, "url": found.add(f"/files/{filename}", data), "size": len(data)}
            said = zipfile.ZipFile(io.BytesIO(data)).read(f"{name}-{version}.dist-info/METADATA")
            found.add(f"/files/{filename}.metadata", said)
            more = {"hashes": {"sha256": sha256(data)}, "upload-time": f"{day}T00:00:00Z", "core-metadata": True}
            pages.setdefault(name, []).append({**link, **more})
        for name, links in pages.items():
            found.index(name, *links)
        yield found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> Path:
    """An owner's folder with the stack, with that index as uv's."""
    for name in ("stacks", "locks"):
        (tmp_path / "files" / name).mkdir(parents=True)
    (tmp_path / "files" / "stacks" / "small.yaml").write_text(yaml.safe_dump(PAGE))
    (tmp_path / "files" / "locks" / "small.in").write_text(INPUT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.url}/simple")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["stacks", *arguments])


def test_a_lock_is_made_of_the_best_wheels_and_is_in_order(folder: Path) -> None:
    done = call("lock", "small")
    assert done.exit_code == 0, done.output
    written = (folder / "files/locks/small-py312.txt").read_text()
    found = lock.read(written, "small")
    assert [(pin.name, pin.version, pin.filename) for pin in found.pins] == [
        ("speed", "3", "speed-3-cp38-abi3-manylinux_2_28_x86_64.whl"),
        ("tool", "1.5", "tool-1.5-py3-none-any.whl"),
    ]
    assert found.repacked == {"engine": ("1.0", ("tool[fast]>=1",))}
    assert found.pins[1].needs == ("speed==3",)
    data = wheel("speed", "3", {"speed.py": b"x = 1\n"})
    assert (found.pins[0].sha256, found.pins[0].size) == (sha256(data), len(data))
    assert "http" not in written
    older = lock.parse((folder / "files/locks/small-py311.txt").read_text(), "small")
    assert [pin.name for pin in older] == ["old", "speed", "tool"]
    assert call("check", "small").output == "small: in order: small\n"


def test_one_python_only(folder: Path) -> None:
    assert call("lock", "small", "--python", "3.11").exit_code == 0
    assert [path.name for path in (folder / "files/locks").glob("*.txt")] == ["small-py311.txt"]
    done = call("check", "small")
    assert done.exit_code == 2 and "small-py312.txt: No such file" in done.output


def test_wheels_of_a_folder(folder: Path, server: Server) -> None:
    (folder / "here").mkdir()
    name = "speed-3-cp312-cp312-manylinux_2_35_x86_64.whl"
    data = wheel("speed", "3", {"speed.py": b"y = 1\n"})
    (folder / "here" / name).write_bytes(data)
    assert call("lock", "small", "--python", "3.12", "--find-links", str(folder / "here")).exit_code == 0
    (pin, _) = lock.parse((folder / "files/locks/small-py312.txt").read_text(), "small")
    assert (pin.filename, pin.sha256, pin.size) == (name, sha256(data), len(data))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lock", "smal"), "did you mean 'small'?"),
        (("lock", "small", "--python", "3.9"), "small is for Python 3.12, 3.11, not 3.9"),
        (("lock", "planned"), "planned has no `lock`"),
        (("check", "smal"), "did you mean 'small'?"),
    ],
)
def test_a_wrong_call_is_2(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    planned = {key: value for key, value in PAGE.items() if key not in ("lock", "uv")} | {"name": "planned"}
    (folder / "files/stacks/planned.yaml").write_text(yaml.safe_dump(planned))
    done = call(*arguments)
    assert done.exit_code == 2 and said in done.output


def test_what_uv_cannot_resolve_is_said_in_its_words_and_nothing_is_written(folder: Path) -> None:
    (folder / "files/locks/small.in").write_text(INPUT + "tool==7\n")
    done = call("lock", "small")
    assert done.exit_code == 2
    assert "locks/small.in: uv finds no set of packages for Python 3.12; mend the file" in done.output
    assert "tool==7" in done.output
    assert not list((folder / "files/locks").glob("*.txt"))


def test_the_input_has_the_version_of_the_page(folder: Path) -> None:
    page = {**PAGE, "wheels": [{**PAGE["wheels"][0], "version": "1.1"}]}  # type: ignore[index]
    (folder / "files/stacks/small.yaml").write_text(yaml.safe_dump(page))
    done = call("lock", "small")
    assert done.exit_code == 2 and "uv takes engine 1.0, but stacks/small.yaml has 1.1" in done.output


def test_without_uv_it_says_how_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(folder))
    done = call("lock", "small")
    assert done.exit_code == 2 and "pip install uv" in done.output
    (folder / "uv").write_text("")
    os.chmod(folder / "uv", 0o755)
    assert lock_make.uv() == folder / "uv"


def test_the_catalogue_is_listed_with_what_can_be_installed(folder: Path) -> None:
    planned = {key: value for key, value in PAGE.items() if key not in ("lock", "uv")} | {"name": "planned"}
    (folder / "files/stacks/planned.yaml").write_text(yaml.safe_dump(planned))
    rows = {line.split()[0]: line.split()[1:] for line in call().output.splitlines()}
    assert rows["small"] == ["cpu", "no", "3.11", "3.12", "yes"]
    assert rows["planned"] == ["cpu", "no", "3.11", "3.12", "no,", "it", "has", "no", "lock"]
    assert rows["vllm-0.27.1-sm75"][:2] == ["sm75", "all"]


def test_metadata_beside_a_wheel_is_all_that_is_read(server: Server) -> None:
    url = server.add("/a/x-1-py3-none-any.whl", b"no wheel")
    server.add("/a/x-1-py3-none-any.whl.metadata", b"Name: x\n")
    assert metadata(url, 8) == "Name: x\n"


def test_without_it_a_wheel_is_read_by_ranges(server: Server) -> None:
    data = wheel("large", "1", {"large.bin": os.urandom(1 << 20)}, ["six"])
    url = server.add("/b/large-1-py3-none-any.whl", data)
    assert "Requires-Dist: six" in metadata(url, len(data))
    assert server.sent < len(data) / 4


def test_a_server_without_ranges_and_metadata_is_said(server: Server) -> None:
    server.ranges = False
    data = wheel("whole", "1", {"a.py": b""})
    url = server.add("/c/whole-1-py3-none-any.whl", data)
    with pytest.raises(MetadataError, match="does not send parts of files"):
        metadata(url, len(data))


def test_an_index_with_a_login_is_asked_with_it(folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the pages by uv, for the metadata by us; neither the lock nor an address on the way has it."""
    server.password = "Basic dXNlcjpwdw=="  # user:pw
    refused = call("lock", "small")
    assert refused.exit_code == 2
    monkeypatch.setenv("UV_DEFAULT_INDEX", server.url.replace("://", "://user:pw@") + "/simple")
    done = call("lock", "small")
    assert done.exit_code == 0, done.output
    assert "pw" not in (folder / "files/locks/small-py312.txt").read_text()


def test_metadata_is_asked_for_with_the_login_of_its_index(server: Server) -> None:
    server.password = "Basic dXNlcjpwdw=="
    data = wheel("shut", "1", {"a.py": b""}, ["six"])
    url = server.add("/d/shut-1-py3-none-any.whl", data)
    with pytest.raises(MetadataError, match="401"):
        metadata(url, len(data))
    assert "Requires-Dist: six" in metadata(url, len(data), (server.url.replace("://", "://user:pw@"),))


def test_the_authorities_of_pip_count_for_metadata(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "ca.pem"))
    url = server.add("/e/x-1-py3-none-any.whl", b"no wheel")
    server.add("/e/x-1-py3-none-any.whl.metadata", b"Name: x\n")
    with pytest.raises(MetadataError, match=r"certificate|SSL|PEM"):
        metadata(url, 8, (f"{server.url}/of-this-test",))


def test_a_package_without_a_wheel_that_fits_is_named() -> None:
    package = {"name": "a", "version": "1", "wheels": [{"url": "https://x/a-1-cp39-cp39-win_amd64.whl"}]}
    with pytest.raises(ConfigError, match=r"^a 1: none of its wheels fits \(a-1-cp39-cp39-win_amd64.whl\)"):
        lock_make.wheel_of(package, {})
