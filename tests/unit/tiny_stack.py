"""A stack small enough to be fetched in a test: locked wheels, one that is repacked, a source; and who serves them."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpufleet.catalogue import load
from gpufleet.settings import Mirrors
from gpufleet.stacks import Stack
from gpufleet.wheelhouse.items import UV_WHEEL
from gpufleet.wheelhouse.source import content_digest
from gpufleet.wheelhouse.store import Store
from tests.unit.repositories import commit
from tests.unit.servers import Server, sha256

SOURCE = {"quick/__init__.py": b"x = 1\n"}
PATCH = "--- a/engine/__init__.py\n+++ b/engine/__init__.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
PAGE = """
schema: 1
name: tiny
title: Tiny
engine: vllm
python: ["3.11", "3.12"]
arch: [cpu]
default_for: []
uv: {{version: 0.1.0, sha256: {uv}}}
lock: tiny
torch_index: {torch_index}
wheels:
  - {{name: engine, version: "1.0", filename: engine-1.0-py3-none-any.whl, sha256: {engine}, patches: engine-1}}
sources:
  - name: quick
    version: "0.1"
    git: https://example.org/a/quick
    commit: {commit}
    sha256: {source}
    packages: [quick]
"""


def wheel(name: str, version: str, files: dict[str, bytes], needs: Sequence[str] = ()) -> bytes:
    """A genuine wheel. + needs: its Requires-Dist"""
    asked = "".join(f"Requires-Dist: {one}\n" for one in needs)
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{asked}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [[path, f"sha256={_digest(content)}", str(len(content))] for path, content in files.items()]
    record = io.StringIO()
    csv.writer(record, lineterminator="\n").writerows([*rows, [f"{info}/RECORD", "", ""]])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for path, content in {**files, f"{info}/RECORD": record.getvalue().encode()}.items():
            packed.writestr(zipfile.ZipInfo(path), content)
    return out.getvalue()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@dataclass
class Tiny:
    """An owner's folder `root` with the stack, and a server whose index has all of it; torch's build has its own."""

    root: Path
    server: Server
    wheels: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.wheels = {
            UV_WHEEL.format("0.1.0"): wheel("uv", "0.1.0", {"uv/__init__.py": b""}),
            "alpha-1.0-py3-none-any.whl": wheel("alpha", "1.0", {"alpha/__init__.py": b"a" * 300_000}),
            "beta-2.0-py3-none-any.whl": wheel("beta", "2.0", {"beta/__init__.py": b"b"}),
            "torch-3.0+cpu-py3-none-any.whl": wheel("torch", "3.0+cpu", {"torch/__init__.py": b"t"}),
            "engine-1.0-py3-none-any.whl": wheel("engine", "1.0", {"engine/__init__.py": b"x = 1\n"}),
        }
        for name, content in self.wheels.items():
            quoted = name.replace("+", "%2B")
            self.server.add(f"/files/{quoted}", content)
            link = {"filename": name, "url": f"/files/{quoted}", "hashes": {"sha256": sha256(content)}}
            under = "/torch" if name.startswith("torch") else "/simple"
            self.server.index(name.split("-")[0], {**link, "size": len(content)}, under=under)
        found = commit(self.root / "git" / "a" / "quick", SOURCE)
        files = self.root / "files"
        for folder in ("stacks", "models", "locks", "patches/engine-1"):
            (files / folder).mkdir(parents=True)
        (files / "patches/engine-1/0001-two.patch").write_text(PATCH)
        (files / "patches/engine-1/series").write_text("0001-two.patch\n")
        hashes = {name.split("-")[0]: sha256(content) for name, content in self.wheels.items()}
        page = PAGE.format(
            uv=hashes["uv"],
            engine=hashes["engine"],
            commit=found,
            source=content_digest(SOURCE),
            torch_index=f"{self.server.url}/torch",
        )
        (files / "stacks/tiny.yaml").write_text(page)
        (files / "locks/tiny-py311.txt").write_text(self.lock("alpha", "beta", "torch"))
        (files / "locks/tiny-py312.txt").write_text(self.lock("alpha", "torch"))

    def lock(self, *names: str) -> str:
        lines = []
        for filename, content in self.wheels.items():
            name, version = filename.split("-")[:2]
            if name in names:
                lines += [f"{name}=={version} \\", f"    --hash=sha256:{sha256(content)}"]
                lines += [f"    # {filename} {len(content)}"]
        return "\n".join(lines) + "\n"

    @property
    def stack(self) -> Stack:
        return load(Stack, "stack", [self.root / "files" / "stacks"])["tiny"]

    @property
    def mirrors(self) -> Mirrors:
        return Mirrors(pypi=f"{self.server.url}/simple", git=f"file://{self.root}/git/{{path}}")

    def fetched(self) -> list[str]:
        """The files that were asked for, without pages of the index."""
        return sorted(path.removeprefix("/files/") for path in self.server.asked if path.startswith("/files/"))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiny]:
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    with Server() as server:
        yield Tiny(tmp_path / "owner", server)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")
